"""gVisor without a gateway: `runsc` by hand, with the gateway's flags."""

import io
import itertools
import json
import subprocess
import tarfile
from pathlib import Path


class Bundle:
    """A root and what is run in it."""

    def __init__(self, layer: bytes, entry_point: list[str], folder: Path):
        self.folder, self.numbers = folder, itertools.count()
        folder.mkdir()
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            tar.extractall(folder / "rootfs")
        subprocess.run(["runsc", "spec", "--bundle", folder, "--", *entry_point], check=True, capture_output=True)
        spec = json.loads((folder / "config.json").read_text())
        spec["process"]["terminal"] = False
        (folder / "config.json").write_text(json.dumps(spec))

    def run_command(self) -> list[str]:
        """The command that runs it once, on its own pipes."""
        flags = ["--platform=systrap", "--network=none", "--overlay2=none", "--ignore-cgroups"]
        return ["runsc", f"--root={self.folder}/state", *flags, "run", f"--bundle={self.folder}", f"bench-{next(self.numbers)}"]
