"""Debezium's connector for PostgreSQL in a Kafka Connect worker: changes of a database as topics."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Self

from tests.support.postgres import USER, Postgres

from lakebackup_jobs.runtime.child import Child, free_port, tail
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import class_path

HEARTBEAT = "lakebackup_heartbeat"


class Debezium:
    """A worker with one connector, in a folder. As a context manager it runs inside the block.

    The topics are `<prefix>.<schema>.<table>`, `<prefix>.transaction` and `__debezium-heartbeat.<prefix>`.
    The folder keeps the connector's offsets: when it is started again, it continues from there. `changes` are
    added to the connector's settings, or replace them. `schemas`: whether each message contains its schema.
    """

    def __init__(
        self, folder: Path, bootstrap: str, postgres: Postgres, database: str, *, schemas: bool = False,
        **changes: str,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.prefix = database
        self.log = folder / "connect.log"
        self._port = free_port()
        self._child: Child | None = None
        self._postgres = postgres
        with postgres.connect(database) as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {HEARTBEAT} (id int PRIMARY KEY, at timestamptz)")
        converter = {
            "": "org.apache.kafka.connect.json.JsonConverter",
            ".schemas.enable": str(schemas).lower(),
        }
        self._worker = {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://127.0.0.1:{self._port}",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            **{
                f"{part}.converter{key}": value
                for part in ("key", "value")
                for key, value in converter.items()
            },
        }
        self._connector = {
            "name": database,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.user": USER,
            "database.password": "-",
            "database.dbname": database,
            "topic.prefix": self.prefix,
            "plugin.name": "pgoutput",
            "slot.name": database,
            "publication.name": database,
            "snapshot.mode": "initial",
            "provide.transaction.metadata": "true",
            "skipped.operations": "none",
            "heartbeat.interval.ms": "500",
            "heartbeat.action.query": f"INSERT INTO {HEARTBEAT} VALUES (1, now()) "
            "ON CONFLICT (id) DO UPDATE SET at = EXCLUDED.at",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.cleanup.policy": "delete",
            "topic.creation.default.retention.ms": "-1",
            **changes,
        }

    def start(self, seconds: float = 60) -> Self:
        """Start the worker and wait until the connector runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = []
        for name, properties in (("worker", self._worker), ("connector", self._connector)):
            settings.append(self.folder / f"{name}.properties")
            settings[-1].write_text("".join(f"{k}={v}\n" for k, v in properties.items()), "utf-8")
        with as_file(files("lakebackup_jobs") / "log4j2.properties") as log4j:
            command = [
                str(java_home() / "bin" / "java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={log4j}",
                "-cp", f"{class_path('debezium')}:{class_path('kafka')}",
                "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, settings),
            ]  # fmt: skip
        self._child = Child(command, self.log)
        deadline = time.monotonic() + seconds
        while not self._runs():
            if not self._child.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Debezium did not start:\n{tail(self.log, 40)}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """Shut the worker down."""
        if self._child:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """Kill the worker (SIGKILL), as a crash would."""
        if self._child:
            self._child.kill()
            self._child = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _runs(self) -> bool:
        status = self._ask(f"connectors/{self.prefix}/status")
        if status is None:
            return False
        parts = [status["connector"], *status["tasks"]]
        failed = [part["trace"] for part in parts if part["state"] == "FAILED"]
        if failed:
            self.kill()
            raise RuntimeError(f"Debezium failed: {failed[0]}")
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)

    def _ask(self, path: str) -> Any:
        """The worker's answer; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=5) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None
