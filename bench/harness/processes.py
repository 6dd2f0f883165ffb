"""What /proc says of process trees: memory, CPU, and how much of the machine others used."""

import os
import platform
import resource
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> tuple[str, int, float] | None:
    """A process's name, parent and CPU seconds; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    head, tail = text.rsplit(")", 1)
    fields = tail.split()
    return head.split("(", 1)[1], int(fields[1]), sum(map(int, fields[11:15])) / TICK


def tree(root: int) -> dict[int, tuple[str, float]]:
    """The root and all its descendants: name and CPU seconds by process id."""
    everyone = {int(p): s for p in os.listdir("/proc") if p.isdigit() and (s := stat(int(p)))}
    children: dict[int, list[int]] = {}
    for pid, (_, parent, _) in everyone.items():
        children.setdefault(parent, []).append(pid)
    found, queue = {}, [root]
    while queue:
        pid = queue.pop()
        if pid in everyone:
            found[pid] = (everyone[pid][0], everyone[pid][2])
            queue += children.get(pid, [])
    return found


def pss_mib(root: int, without: str) -> float:
    """Memory of a tree with shared pages counted once, without the processes of one name."""
    total = 0
    for pid, (name, _) in tree(root).items():
        if name != without:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def written(root: int, name: str, argument: str) -> int:
    """Bytes that the processes of a tree have written which have this name and this argument."""
    total = 0
    for pid in (pid for pid, (found, _) in tree(root).items() if found == name):
        try:
            if argument in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
                total += int(counts["wchar"])
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile
    return total


class Others:
    """Measures the part of the machine that neither we nor the trees used meanwhile."""

    def __init__(self, roots: list[int]):
        self.roots = roots
        self.before = self.now()

    def now(self) -> tuple[float, float, float]:
        times = [int(t) / TICK for t in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        ours = sum(cpu for root in self.roots for _, cpu in tree(root).values())
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            ours += usage.ru_utime + usage.ru_stime
        idle = times[3] + times[4]
        return sum(times), sum(times) - idle, ours

    def share(self) -> float:
        total, busy, ours = (b - a for a, b in zip(self.before, self.now()))
        return max(0.0, (busy - ours) / max(total, 1e-9))


def machine() -> dict:
    """What it was measured on."""
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    models = [l.split(":", 1)[1].strip() for l in Path("/proc/cpuinfo").read_text().splitlines()
              if l.startswith("model name")]
    return {"cores": len(os.sched_getaffinity(0)), "cpu": models[0] if models else platform.machine(),
            "kernel": platform.release(), "memory_gib": round(int(memory.split()[1]) / 1024**2, 1)}
