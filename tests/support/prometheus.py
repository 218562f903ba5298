"""Prometheus itself on this machine, and the node exporter with which it reads files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.support.kafka_truth import until
from tests.support.programs import program

from lakebackup_jobs.runtime.child import Child, free_port, tail


@contextmanager
def child(log: Path, url: str, command: list[str | Path]) -> Iterator[str]:
    """A server while the block runs, from when this URL of it answers. Gives the URL."""
    server = Child([str(word) for word in command], log)

    def answers() -> bool:
        assert server.running, tail(log)
        try:
            return httpx.get(url, timeout=60).status_code < 500
        except httpx.TransportError:
            return False

    try:
        until(answers, f"{command[0]} answers")
        yield url
    finally:
        server.stop()


class Prometheus:
    """Asks a server over its HTTP API."""

    def __init__(self, url: str) -> None:
        self._api = httpx.Client(base_url=f"{url}/api/v1", timeout=60)

    def get(self, path: str, **parameters: str) -> Any:
        """What it answers. Fails when that is an error or has a warning."""
        answer = self._api.get(path, params=parameters).json()
        assert (answer["status"], answer.get("warnings")) == ("success", None), (parameters, answer)
        return answer["data"]

    def ask(self, expression: str) -> list[Any]:
        """The series of an expression, now."""
        result: list[Any] = self.get("query", query=expression)["result"]
        return result

    def down(self) -> dict[str, str]:
        """The jobs that are not up, each with the error of its last scrape."""
        targets = self.get("targets")["activeTargets"]
        return {one["labels"]["job"]: one["lastError"] for one in targets if one["health"] != "up"}

    def alerts(self) -> set[tuple[str, str, str]]:
        """Name, source or task, and state of each alert that fires or is to fire."""
        return {
            (labels["alertname"], labels.get("source", labels.get("task", "")), one["state"])
            for one in self.get("alerts")["alerts"]
            for labels in (one["labels"],)
        }


@contextmanager
def prometheus(folder: Path, jobs: list[dict[str, Any]], rules: Path) -> Iterator[Prometheus]:
    """A server with these jobs to scrape, four times a minute, and rules to evaluate, every second."""
    server = program("prometheus", package="prometheus")
    every = {"scrape_interval": "15s", "scrape_timeout": "15s"}
    config = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [job | every for job in jobs],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), "utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        server, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]  # fmt: skip
    with child(folder / "prometheus.log", f"{url}/-/ready", command):
        yield Prometheus(url)
