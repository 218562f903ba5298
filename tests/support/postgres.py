"""A PostgreSQL server with logical decoding on this machine, with a new database for each test."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, Self, cast
from uuid import uuid4

import psycopg
from tests.support.unpacked import unpack

from lakebackup_jobs.runtime.child import Child, free_port, tail
from lakebackup_jobs.runtime.java.jars import JarSet, class_path

NOBODY = 65_534
USER = "postgres"

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "fsync": "off",
    "shared_buffers": "32MB",
    "timezone": "UTC",
}


class Postgres:
    """A server in a folder that it creates and removes. As a context manager it runs inside the block.

    PostgreSQL refuses to run as root, and an unprivileged account cannot enter root's folders. Hence the
    server has its own folder, which also holds its programs.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="lakebackup-postgres-"))
        self._user = NOBODY if os.getuid() == 0 else None
        self._child: Child | None = None

    @property
    def log(self) -> Path:
        """The file of the server's log."""
        return self.folder / "postgres.log"

    def start(self, seconds: float = 60) -> Self:
        """Unpack and start the server, and wait until it answers."""
        deadline = time.monotonic() + seconds
        program = self._unpack() / "bin"
        data = self.folder / "data"
        if self._user is not None:
            os.chown(self.folder, self._user, -1)
        subprocess.run(
            [program / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C",
             "--no-sync", "--no-instructions"],
            user=self._user, cwd=self.folder, check=True, capture_output=True, timeout=seconds,
        )  # fmt: skip
        with (data / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
            settings.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())
            settings.write(f"port = {self.port}\n")
        self._child = Child([str(program / "postgres"), "-D", str(data)], self.log, user=self._user)
        while not self._answers():
            if not self._child.running or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"PostgreSQL did not start:\n{tail(self.log)}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """Kill the server and remove its folder."""
        if self._child:
            self._child.kill()  # its files are removed anyway; its other processes notice and end
            self._child = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def database(self) -> str:
        """Create an empty database; returns its name."""
        name = f"test_{uuid4().hex[:8]}"
        with self.connect("postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return name

    def connect(self, database: str, **options: Any) -> psycopg.Connection[Any]:
        """A connection to one of its databases."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, dbname=database, connect_timeout=10, **options
        )

    def _answers(self) -> bool:
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _unpack(self) -> Path:
        """Unpack the programs from the archive in the published package; returns their folder."""
        program = self.folder / "program"
        package = class_path(cast("JarSet", f"postgres-{platform.machine()}"))
        with zipfile.ZipFile(package) as archive:
            inner = next(name for name in archive.namelist() if name.endswith(".txz"))
            with archive.open(inner) as packed:
                unpack(packed, program)
        return program
