"""Runs Prometheus on this machine, and queries it over its HTTP API."""

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
    """Run a server while the block runs; yields the URL as soon as it answers."""
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
    """A client of a server's HTTP API."""

    def __init__(self, url: str) -> None:
        self._api = httpx.Client(base_url=f"{url}/api/v1", timeout=60)

    def request(self, path: str, **parameters: str) -> Any:
        """The answer's data. Fails if the answer is an error or has a warning."""
        answer = self._api.get(path, params=parameters).json()
        assert (answer["status"], answer.get("warnings")) == ("success", None), (parameters, answer)
        return answer["data"]

    def ask(self, expression: str) -> list[Any]:
        """The series of an expression, now."""
        result: list[Any] = self.request("query", query=expression)["result"]
        return result

    def down(self) -> dict[str, str]:
        """The jobs that are not up, each with the error of its last scrape."""
        targets = self.request("targets")["activeTargets"]
        return {
            target["labels"]["job"]: target["lastError"] for target in targets if target["health"] != "up"
        }

    def alerts(self) -> set[tuple[str, str, str]]:
        """Name, source or task, and state of each alert that is firing or pending."""
        return {
            (labels["alertname"], labels.get("source", labels.get("task", "")), alert["state"])
            for alert in self.request("alerts")["alerts"]
            for labels in (alert["labels"],)
        }


@contextmanager
def prometheus(folder: Path, jobs: list[dict[str, Any]], rules: Path) -> Iterator[Prometheus]:
    """A server that scrapes these jobs four times a minute and evaluates the rules every second."""
    server = program("prometheus", package="prometheus")
    scrape_settings = {"scrape_interval": "15s", "scrape_timeout": "15s"}
    config = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [job | scrape_settings for job in jobs],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), "utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        server, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]  # fmt: skip
    with child(folder / "prometheus.log", f"{url}/-/ready", command):
        yield Prometheus(url)
