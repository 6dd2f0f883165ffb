"""A process and its children held to a part of a core, by cgroup v2 or v1, whichever the host has."""

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class Held:
    """Holds a process; where the host forbids that, says so once and holds nothing."""

    said = False

    def __init__(self, name: str, pid: int, cpu: float):
        self.folder = None
        period = 100_000
        for base, limit in ((ROOT, {"cpu.max": f"{int(cpu * period)} {period}"}),
                            (ROOT / "cpu", {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(int(cpu * period))})):
            folder = base / name
            if not (base / "cgroup.procs").exists():
                continue
            try:
                folder.mkdir()
                for file, value in limit.items():
                    (folder / file).write_text(value)
                (folder / "cgroup.procs").write_text(str(pid))
                self.folder = folder
                return
            except OSError:
                if folder.is_dir():
                    folder.rmdir()
        if not Held.said:
            Held.said = True
            print("the control's bad ones are not held: this host forbids cgroups", flush=True)

    def release(self) -> None:
        if self.folder and self.folder.is_dir():
            try:
                self.folder.rmdir()
            except OSError:
                pass  # its last process is on its way out
