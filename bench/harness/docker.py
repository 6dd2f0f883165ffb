"""Docker where it is installed: a daemon of our own on a private socket, with folders of its own; nothing is left."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from harness.subjects import Failed

TAG = "gantry-bench:1"


class Docker:
    """It runs until it is stopped."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gantry-bench-docker-"))
        self.socket, self.process = f"unix://{self.folder}/socket", None

    @staticmethod
    def missing() -> str:
        """Why there is none; empty if there is one."""
        absent = [name for name in ("dockerd", "docker") if not shutil.which(name)]
        return f"`{absent[0]}` is not installed" if absent else ""

    def start(self) -> None:
        # The network is not used: nothing of the host's is changed.
        settings = {"bridge": "none", "iptables": False, "ip-forward": False}
        (self.folder / "daemon.json").write_text(json.dumps(settings))
        words = ["dockerd", "--config-file", self.folder / "daemon.json", "--data-root", self.folder / "data",
                 "--exec-root", self.folder / "run", "--pidfile", self.folder / "pid", "-H", self.socket]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        until = time.monotonic() + 60
        while subprocess.run([*self.client(), "info"], capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > until:
                said = (self.folder / "log").read_text(errors="replace")[-500:]
                raise Failed(f"its daemon does not start: {said}")
            time.sleep(0.2)

    @property
    def pid(self) -> int:
        return self.process.pid

    def client(self) -> list[str]:
        # Of the daemon's own version, if there are several.
        beside = Path(shutil.which("dockerd")).parent.parent / "bin/docker"
        return [str(beside) if beside.exists() else "docker", "--host", self.socket]

    def version(self) -> str:
        words = [*self.client(), "version", "--format", "{{.Server.Version}}"]
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()

    def run_command(self, layer: bytes, entry_point: list[str]) -> list[str]:
        """Takes a root as an image; returns the command that runs it with its pipes attached."""
        words = [*self.client(), "import", "-c", f"ENTRYPOINT {json.dumps(entry_point)}", "-", TAG]
        subprocess.run(words, input=layer, check=True, capture_output=True)
        return [*self.client(), "run", "-i", "--rm", "--network", "none", TAG]

    def stop(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = None
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if (point := line.split()[1]).startswith(str(self.folder)):
                subprocess.run(["umount", "-l", point], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
