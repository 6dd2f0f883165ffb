"""What is measured: the gateway, the floor, and the bare pipe, all in front of the same backend."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

BACKEND = "backend"  # the program's name, by which its processes are known
PATIENCE = 60  # seconds for a start, in which 50 servers may have to come up
# What every backend is given and gives away in each result; empty unless `bench/run --secrets` says so.
SECRETS: dict[str, str] = {}


class Failed(Exception):
    """A measurement that could not be made."""


def child(programs: Path, tools: int = 1, vice: str = "") -> list[str]:
    """The command of a backend; with a vice it is a bad neighbour."""
    vice = vice or ("leak" if SECRETS else "")
    return [str(programs / BACKEND), str(tools), *([vice] if vice else [])]


def backend(programs: Path, tools: int = 1, vice: str = "") -> dict:
    """The entry of a backend."""
    command, *arguments = child(programs, tools, vice)
    return {"command": command, "args": arguments, **({"env": SECRETS} if SECRETS else {})}


def load(programs: Path, target: dict, plan: dict, **how) -> dict:
    """Runs the generator once."""
    words = [programs / "load", json.dumps({"target": target, "plan": plan})]
    try:
        result = json.loads(subprocess.run(words, stdout=subprocess.PIPE, timeout=180, **how).stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise Failed(f"the generator failed: {error}") from error
    if "failed" in result:
        raise Failed(result["failed"])
    return result


def plan(connections: int = 1, seconds: int = PATIENCE, first: bool = False, tool: str = "echo",
         tools: int | None = None, bytes: int = 64, delay_ms: int = 0, rest_ms: int = 0) -> dict:
    """What the generator does: lists of so many tools, or echoes, with a rest between two of a connection."""
    echo = {"tool": tool, "bytes": bytes, "delay_ms": delay_ms}
    workload = {"list": {"tools": tools}} if tools else {"echo": echo}
    return {"workload": workload, "connections": connections, "seconds": seconds, "first": first, "rest_ms": rest_ms}


class Pipe:
    """No gateway: the generator writes to the backend."""

    name, pid = "pipe", None

    def __init__(self, programs: Path, servers: int, tools: int):
        self.programs, self.servers, self.backend = programs, servers, child(programs, tools)

    def run(self, **what) -> dict:
        target = {"pipe": {"command": self.backend, "children": self.servers if "tools" in what else 1}}
        # One call at a time needs one core, and moving between two costs more than the call.
        core = {min(os.sched_getaffinity(0))}
        keep = None if "connections" in what else lambda: os.sched_setaffinity(0, core)
        return load(self.programs, target, plan(**what), preexec_fn=keep)

    def start_ms(self) -> float:
        return self.run(first=True, connections=1)["first_ms"]

    def stop(self) -> None:
        pass


class Served:
    """A program that answers on a port, with a folder and a process group of its own."""

    name, tool = "", "echo"

    def __init__(self, programs: Path, servers: int, tools: int):
        self.programs, self.servers, self.tools = programs, servers, tools
        self.folder = Path(tempfile.mkdtemp(prefix="gantry-bench-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def target(self, audit: bool = False) -> dict:
        return {"http": {"port": self.port}}

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, **what) -> float:
        """Starts it and waits for the first right answer; milliseconds between the two."""
        what = {"target": self.target(), "plan": plan(first=True, tool=self.tool, **what)}
        waiting = subprocess.Popen([self.programs / "load", json.dumps(what)], stdout=subprocess.PIPE, text=True)
        time.sleep(0.05)  # the generator is up and trying before the clock runs
        with open(self.folder / "log", "ab") as log:
            begun = time.time_ns()
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, env={**os.environ, "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        while waiting.poll() is None and self.process.poll() is None:
            time.sleep(0.02)
        if waiting.poll() is None:
            waiting.kill()
        result = json.loads(waiting.communicate()[0] or '{"failed": "it ended at once"}')
        if "failed" in result:
            log = (self.folder / "log").read_text(errors="replace")[-800:]
            raise Failed(f"{self.name} did not start: {result['failed']}\n{log}")
        return (result["answered_unix_ns"] - begun) / 1e6

    def run(self, **what) -> dict:
        return load(self.programs, self.target(audit="tools" not in what), plan(tool=self.tool, **what))

    def start_ms(self) -> float:
        """Stops it and starts it again on the same folder."""
        self.end()
        return self.start()

    def end(self) -> None:
        """Ends the program, with the whole group if it does not go by itself."""
        if not self.process:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=35)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


class Floor(Served):
    """The minimal bridge: always one child, which has all the tools."""

    name, vice = "floor", ""

    def command(self) -> list[str]:
        behind = child(self.programs, self.servers * self.tools, self.vice)
        return [str(self.programs / "floor"), str(self.port), *behind]


class Remote(Served):
    """The server over HTTP; itself as good a subject as what stands before it."""

    name = "pipe"

    def __init__(self, programs: Path, kind: str):
        super().__init__(programs, 1, 1)
        self.kind = kind

    def command(self) -> list[str]:
        return [str(self.programs / "remote"), str(self.port), self.kind]

    def entry(self) -> dict:
        return {"type": self.kind, "url": f"http://127.0.0.1:{self.port}/{'sse' if self.kind == 'sse' else 'mcp'}"}


class Gantry(Served):
    """The gateway as a person starts it, with all its defaults."""

    name, tool, program = "gantry", "b0__echo", Path()

    def __init__(self, programs: Path, servers: int, tools: int, entries: dict | None = None):
        super().__init__(programs, servers, tools)
        self.entries = entries or {f"b{n}": backend(programs, tools) for n in range(servers)}

    def command(self) -> list[str]:
        config = self.folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": self.entries}))
        return [str(self.program), "up", "--config", str(config), "--data", str(self.folder / "data"),
                "--port", str(self.port)]

    def target(self, audit: bool = False) -> dict:
        keys = self.folder / "data/keys"
        admin = {"admin_key": str(keys / "admin.key")} if audit else {}
        return {"http": {"port": self.port, "key": str(keys / "agent.key"), **admin}}

    def takes_out(self, secrets) -> None:
        """Fails unless a result comes without what its server gave away."""
        call = {"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}}
        result = json.dumps(self.ask("/api/v1/mcp/servers/b0/call", call))
        if "environment" not in result or any(secret in result for secret in secrets):
            raise Failed(f"secrets are not taken out: {result[:300]}")

    def ask(self, path: str, body: dict | None = None) -> dict:
        """What it answers its administrator."""
        key = (self.folder / "data/keys/admin.key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"`{path}` was not answered: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise Failed(f"`{path}` was answered with status {response.status}: {body[:300]!r}")
        return json.loads(body)
