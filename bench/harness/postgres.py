"""A PostgreSQL server of our own, with its defaults: what it says is on disk is."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from harness.subjects import Failed

USER, DATABASE = "gantry", "bench"


def programs() -> Path | None:
    """The folder with the server's programs, where one is installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


class Postgres:
    """It runs until it is stopped, and then nothing of it is left."""

    def __init__(self, programs: Path):
        self.programs, self.process = programs, None
        self.folder = Path(tempfile.mkdtemp(prefix="gantry-bench-postgres-"))
        # The server refuses to be root.
        self.alone = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.alone:
            shutil.chown(self.folder, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self) -> None:
        make = [self.programs / "initdb", "-D", self.folder / "data", "-U", USER, "-A", "trust"]
        subprocess.run([*self.alone, *make], cwd=self.folder, check=True, capture_output=True)
        serve = [self.programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", self.folder,
                 "-c", "listen_addresses=127.0.0.1", "-c", "max_wal_size=4GB"]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([*self.alone, *serve], cwd=self.folder, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + 60
        while True:
            try:
                self.renew()
                return
            except Failed:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    @property
    def pid(self) -> int:
        return self.process.pid

    def url(self, database: str = DATABASE) -> str:
        return f"postgres://{USER}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def renew(self, database: str = DATABASE) -> None:
        """Makes an empty database, in the place of what was there."""
        self.sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE);\nCREATE DATABASE {database}", database="postgres")

    def psql(self, database: str = DATABASE) -> list:
        return [self.programs / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.folder,
                "-p", str(self.port), "-U", USER, "-d", database]

    def sql(self, statements: str, database: str = DATABASE) -> str:
        """Runs statements and returns their rows, one a line."""
        said = subprocess.run(self.psql(database), input=statements, capture_output=True, text=True)
        if said.returncode != 0:
            raise Failed(f"psql: {said.stderr.strip()}")
        return said.stdout.strip()

    def stop(self) -> None:
        if self.process:
            # The group has the server and whoever started it as another user.
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)
