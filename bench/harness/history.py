"""A long record of calls, written straight into the database of a gateway that is stopped: a month of one project
with 20 agents, 30 servers and 10 tools, and an agent, a server and a tool with few calls."""

import random
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness.postgres import Postgres
from harness.subjects import Failed

DAYS, AGENTS, SERVERS, TOOLS, FEW = 30, 20, 30, 10, 49
TABLE = "mcp_tool_call_log"
COLUMNS = ("id", "seq", "project_id", "agent_id", "key_id", "user_id", "session_id", "run_id", "trace_id", "surface",
           "server_name", "method", "tool_name", "started_at", "ended_at", "duration_us", "status", "code", "input",
           "input_bytes", "output", "output_bytes", "repeats", "attempts", "error_kind")
# How calls end that do not end well: status, code, kind of error.
ENDS = (("error", "tool.error", "tool"), ("error", "server.exited", "transport"),
        ("timeout", "call.timeout", "transport"), ("refused", "grant.none", "policy"),
        ("unknown", "call.interrupted", "gateway"))
BODY = '{"text":"' + "." * 80 + '"}'


def rows(count: int, project: str) -> Iterator[tuple]:
    """The calls, oldest first; the newest is a minute old."""
    chance = random.Random(14)
    end = int(time.time() * 1000) - 60_000
    begin, few = end - DAYS * 86_400_000, max(count // FEW, 1)
    for number in range(count):
        at = begin + number * (end - begin) // count
        own = f"{at:012x}{chance.getrandbits(80):020x}"
        trace = f"{chance.getrandbits(128):032x}" if number % 10 == 0 else own
        status, code, kind = ENDS[chance.randrange(len(ENDS))] if chance.random() < 0.03 else ("ok", None, None)
        agent, server, tool = (f"{what}-{chance.randrange(most)}" for what, most in
                               (("agent", AGENTS), ("server", SERVERS), ("tool", TOOLS)))
        if number % few == few // 2:
            agent, server, tool = "few", "few", "few"
        user = f"user-{chance.randrange(2000)}" if number % 5 == 0 else None
        run = f"run-{number // 40}" if number % 4 == 0 else None
        session = f"session-{number // 2000}-{agent}"
        yield ("call_" + own, number, project, agent, "key_bench", user, session, run, trace, "mcp", server,
               "tools/call", tool, at, at + 5, 5000, status, code, BODY, len(BODY), BODY, len(BODY), 1, 1, kind)


def into_sqlite(path: Path, count: int, project: str) -> None:
    """Writes them to a file; its indexes are made when all rows are there."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        wanted = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
        indexes = connection.execute(wanted, (TABLE,)).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        places = ", ".join("?" * len(COLUMNS))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) VALUES ({places})", rows(count, project))
        connection.execute("COMMIT")
        for _, sql in indexes:
            connection.execute(sql)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise Failed(f"the rows could not be written: {error}") from error
    finally:
        connection.close()


def into_postgres(server: Postgres, count: int, project: str) -> None:
    """Writes them to a database, in the same way."""
    indexes = server.sql("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'kb' "
                         f"AND tablename = '{TABLE}' AND indexname NOT LIKE '%_pkey'").splitlines()
    names, texts = zip(*(line.split("|", 1) for line in indexes))
    server.sql("".join(f"DROP INDEX kb.{name};" for name in names))
    copy = f"COPY kb.{TABLE} ({', '.join(COLUMNS)}) FROM STDIN"
    writer = subprocess.Popen([*server.psql(), "-c", copy], stdin=subprocess.PIPE, text=True)
    try:
        for row in rows(count, project):
            writer.stdin.write("\t".join(r"\N" if value is None else str(value) for value in row) + "\n")
        writer.stdin.close()
    except BrokenPipeError:
        pass  # it has said why
    if writer.wait() != 0:
        raise Failed("the rows could not be written to PostgreSQL")
    server.sql("SET maintenance_work_mem = '512MB';" + "".join(f"{text};" for text in texts))
    server.sql(f"VACUUM ANALYZE kb.{TABLE}; CHECKPOINT")
