"""Processes held to a part of a core, by cgroup v2 or v1, whichever the host has."""

import time
from collections.abc import Iterable
from pathlib import Path

from harness.subjects import Failed

ROOT = Path("/sys/fs/cgroup")
PERIOD = 100_000  # microseconds


class Held:
    """A cgroup of its own; where the host forbids that, it fails."""

    def __init__(self, name: str, cpu: float):
        quota = str(int(cpu * PERIOD))
        # A process of one thread moves itself through `tasks` without a lock of the whole host.
        kinds = ((ROOT, "cgroup.procs", {"cpu.max": f"{quota} {PERIOD}"}),
                 (ROOT / "cpu", "tasks", {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": quota}))
        why = f"there are none at {ROOT}"
        for base, door, limit in kinds:
            if not (base / "cgroup.procs").exists():
                continue
            self.folder, self.door = base / name, base / name / door
            try:
                self.folder.mkdir()
                for file, value in limit.items():
                    (self.folder / file).write_text(value)
                return
            except OSError as error:
                why = error
                self.release()
        raise Failed(f"the control's bad ones cannot be held by cgroups: {why}")

    def command(self, words: list[str]) -> list[str]:
        """The command that enters before it becomes that program, so that none of its children is outside."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.door), *words]

    def holds(self, pids: Iterable[int]) -> bool:
        return set(pids) <= set(map(int, (self.folder / "cgroup.procs").read_text().split()))

    def release(self) -> None:
        until = time.monotonic() + 1  # its last process may be on its way out
        while self.folder.is_dir():
            try:
                self.folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    return
                time.sleep(0.02)
