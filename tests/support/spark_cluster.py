"""A standalone Spark cluster on this machine: a master and workers, each in its own process."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from lakebackup_jobs.runtime.child import Child, free_port, tail
from lakebackup_jobs.runtime.java.home import java_home

_DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """A master with `workers` workers of one core each, inside the block."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder, self._workers = folder, workers
        self._port, self._web = free_port(), free_port()
        self._children: list[Child] = []
        folder.mkdir(parents=True)

    @property
    def master(self) -> str:
        """The value for `--master`."""
        return f"spark://127.0.0.1:{self._port}"

    def state(self) -> dict[str, Any]:
        """The master's report on its workers and applications."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
            report: dict[str, Any] = json.load(answer)
        return report

    def __enter__(self) -> Self:
        host = ["--host", "127.0.0.1"]
        self._start("master.Master", *host, "--port", str(self._port), "--webui-port", str(self._web))
        for number in range(self._workers):
            self._start(
                "worker.Worker", self.master, *host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(self._folder / f"work-{number}"),
            )  # fmt: skip
        deadline = time.monotonic() + 90
        while not self._has_all_workers():
            if time.monotonic() > deadline or not all(child.running for child in self._children):
                self.__exit__(None, None, None)
                raise AssertionError(f"the cluster did not start:\n{tail(self._log)}")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._children):
            child.kill()

    @property
    def _log(self) -> Path:
        return self._folder / "cluster.log"

    def _start(self, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        command = [str(home / "bin" / "spark-class"), f"{_DEPLOY}.{name}", *arguments]
        self._children.append(Child(command, self._log, env=environment))

    def _has_all_workers(self) -> bool:
        try:
            return len(self.state()["workers"]) == self._workers
        except OSError:
            return False
