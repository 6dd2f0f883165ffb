"""Images to host: a program with the libraries it needs, and Python with a server of a few lines; as `docker save`
writes them, and as the plain root that `docker import` takes."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

# What a Python server does at least: reads lines, answers the handshake and echoes.
PYTHON_SERVER = '''import json, sys, argparse, asyncio, logging, typing, dataclasses
TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    method, answer = ask.get("method"), {"jsonrpc": "2.0", "id": ask["id"]}
    if method == "initialize":
        info = {"name": "python", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    elif method == "tools/call":
        text = ask["params"]["arguments"].get("text", "")
        answer["result"] = {"content": [{"type": "text", "text": text}]}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "method not found"}
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()
'''


def libraries(program: Path) -> list[Path]:
    """The libraries that a program is linked with, its loader included."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return [Path(word) for word in said.split() if word.startswith("/") and not word.endswith(":")]


class Root:
    """The files of an image."""

    def __init__(self):
        self.bytes, self.names = io.BytesIO(), set()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w")

    def add(self, name: str, content: bytes, mode: int = 0o755, changed: float = 0) -> None:
        name = name.lstrip("/")
        if name in self.names:
            return
        self.names.add(name)
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = len(content), mode, int(changed)
        self.tar.addfile(entry, io.BytesIO(content))

    def folder(self, name: str, mode: int = 0o1777) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self.tar.addfile(entry)

    def program(self, program: Path, name: str) -> None:
        self.add(name, program.read_bytes())
        for library in libraries(program):
            self.add(str(library), library.read_bytes())

    def finish(self) -> bytes:
        self.folder("tmp")
        self.tar.close()
        return self.bytes.getvalue()


def of_program(program: Path) -> bytes:
    """The root of an image that has nothing but one program."""
    root = Root()
    root.program(program, "server")
    return root.finish()


def of_python() -> bytes:
    """The root of an image with this machine's Python and the server above."""
    root, found = Root(), json.loads(subprocess.run(
        ["/usr/bin/python3", "-c", "import sys, sysconfig, json; "
         "print(json.dumps([sys.executable, sysconfig.get_path('stdlib')]))"], capture_output=True, check=True).stdout)
    program, library = Path(found[0]).resolve(), Path(found[1])
    root.program(program, "usr/bin/python3")
    for path in sorted(library.rglob("*")):
        inside = path.relative_to(library).parts
        if path.is_file() and inside[0] not in ("test", "idlelib", "tkinter", "ensurepip", "lib2to3"):
            # With its time, as images have it: Python compiles anew what does not fit its compiled form.
            root.add(str(path), path.read_bytes(), 0o644, path.stat().st_mtime)
            if path.suffix == ".so":
                for needed in libraries(path):
                    root.add(str(needed), needed.read_bytes())
    root.add("server.py", PYTHON_SERVER.encode(), 0o644)
    return root.finish()


def archive(name: str, layer: bytes, entry_point: list[str], to: Path) -> Path:
    """Writes an image as `docker save` does."""
    machine = {"aarch64": "arm64"}.get(platform.machine(), "amd64")
    config = {"os": "linux", "architecture": machine, "config": {"Entrypoint": entry_point, "Env": ["PATH=/usr/bin"]},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(to, "w") as tar:
        for member, content in [("manifest.json", json.dumps(manifest).encode()),
                                ("config.json", json.dumps(config).encode()), ("layer.tar", layer)]:
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return to
