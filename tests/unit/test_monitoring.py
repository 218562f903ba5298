"""Alerts and metrics, checked by Prometheus' own promtool; and the pages name metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import generate_latest
from tests.support.monitored import put_monitored
from tests.support.programs import program

from lakebackup_jobs.cli import main
from lakebackup_jobs.logs.control.metrics import LogCollector, of_destination
from lakebackup_jobs.query.source_metrics import STATES, of_catalog

MONITORING = Path(__file__).parents[2] / "docs/monitoring"
PAGE = (MONITORING / "README.md").read_text("utf-8")
BOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))
ALERTS = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
CASES = sorted((Path(__file__).parent / "alerts").iterdir())


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitored") / "backups"
    put_monitored(folder)
    return folder


def promtool(*words: str | Path, stdin: bytes = b"") -> None:
    command = [program("promtool", package="prometheus"), *words]
    process = subprocess.run(command, input=stdin, capture_output=True)
    assert (process.returncode, process.stderr) == (0, b""), process.stdout + process.stderr


def test_the_rules_are_rules() -> None:
    promtool("check", "rules", MONITORING / "alerts.yml")


@pytest.mark.parametrize("cases", CASES, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should(cases: Path) -> None:
    promtool("test", "rules", cases)


def test_every_alert_is_tried_and_explained() -> None:
    tests: list[Any] = [test for file in CASES for test in yaml.safe_load(file.read_text("utf-8"))["tests"]]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in ALERTS}
    for fires in (True, False):
        assert {case["alertname"] for case in cases if bool(case.get("exp_alerts")) is fires} == names
    assert {name for name in names if f"| {name} |" in PAGE} == names


def test_metrics_are_well_formed(destination: Path, tmp_path: Path) -> None:
    location = str(destination), None
    promtool("check", "metrics", stdin=generate_latest(of_destination(*location)))
    file = tmp_path / "lakebackup.prom"
    main(["status", "--repo", str(destination), "--metrics", str(file)])
    promtool("check", "metrics", stdin=file.read_bytes())


def test_serve_metrics(destination: Path, tmp_path: Path) -> None:
    """Two seconds: the server runs in a process of its own and serves what `status --metrics` writes."""
    command = [sys.executable, "-m", "lakebackup_jobs", "serve", "metrics", "--port", "0", "--json"]
    with subprocess.Popen([*command, "--repo", destination], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = json.loads(server.stdout.readline())["url"]
        metrics = httpx.get(url, timeout=60).text
        server.terminate()
        assert server.wait(60) == 0
    promtool("check", "metrics", stdin=metrics.encode())
    line = 'lakebackup_status{source="orders",status="FAILED"} 1.0'
    main(["status", "--repo", str(destination), "--metrics", str(tmp_path / "file")])
    assert line in metrics
    assert line in (tmp_path / "file").read_text()
    assert "lakebackup_log_running" in metrics


def test_dashboard_alerts_and_page_name_metrics_that_exist(destination: Path) -> None:
    location = str(destination), None
    of_sources, of_tasks = (
        {family.name + ("_total" if family.type == "counter" else "") for family in collector.collect()}
        for collector in (of_catalog(*location), LogCollector(*location))
    )
    panel_exprs = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    watched = " ".join([*panel_exprs, *(rule["expr"] for rule in ALERTS)])
    assert set(re.findall(r"lakebackup_\w+", watched)) <= of_sources | of_tasks
    assert of_tasks <= set(re.findall(r"lakebackup_\w+", watched))
    assert of_sources <= set(re.findall(r"`(lakebackup_\w+)", PAGE))
    assert set(re.findall(r'status="(\w+)"', watched)) == set(STATES) - {"OK"}
