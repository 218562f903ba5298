"""Alerts and metrics as promtool, Prometheus' own, judges them; and the pages name what there is."""

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


def promtool(*words: str | Path, given: bytes = b"") -> None:
    command = [program("promtool", package="prometheus"), *words]
    done = subprocess.run(command, input=given, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b""), done.stdout + done.stderr


def test_the_rules_are_rules() -> None:
    promtool("check", "rules", MONITORING / "alerts.yml")


@pytest.mark.parametrize("cases", CASES, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should(cases: Path) -> None:
    promtool("test", "rules", cases)


def test_every_alert_is_tried_and_explained() -> None:
    tests: list[Any] = [one for file in CASES for one in yaml.safe_load(file.read_text("utf-8"))["tests"]]
    cases = [case for one in tests for case in one["alert_rule_test"]]
    names = {rule["alert"] for rule in ALERTS}
    for fires in (True, False):
        assert {case["alertname"] for case in cases if bool(case.get("exp_alerts")) is fires} == names
    assert {name for name in names if f"| {name} |" in PAGE} == names


def test_metrics_are_well_formed(destination: Path, tmp_path: Path) -> None:
    at = str(destination), None
    promtool("check", "metrics", given=generate_latest(of_destination(*at)))
    file = tmp_path / "lakebackup.prom"
    main(["status", "--repo", str(destination), "--metrics", str(file)])
    promtool("check", "metrics", given=file.read_bytes())


def test_serve_metrics(destination: Path, tmp_path: Path) -> None:
    """In a process of its own, two seconds: that it serves what `status --metrics` writes, until SIGTERM."""
    command = [sys.executable, "-m", "lakebackup_jobs", "serve", "metrics", "--port", "0", "--json"]
    with subprocess.Popen([*command, "--repo", destination], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = json.loads(server.stdout.readline())["url"]
        found = httpx.get(url, timeout=60).text
        server.terminate()
        assert server.wait(60) == 0
    promtool("check", "metrics", given=found.encode())
    wanted = 'lakebackup_status{source="orders",status="FAILED"} 1.0'
    main(["status", "--repo", str(destination), "--metrics", str(tmp_path / "file")])
    assert wanted in found
    assert wanted in (tmp_path / "file").read_text()
    assert "lakebackup_log_running" in found


def test_dashboard_alerts_and_page_name_metrics_that_there_are(destination: Path) -> None:
    at = str(destination), None
    of_sources, of_tasks = (
        {family.name + ("_total" if family.type == "counter" else "") for family in found.collect()}
        for found in (of_catalog(*at), LogCollector(*at))
    )
    shown = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    watched = " ".join([*shown, *(rule["expr"] for rule in ALERTS)])
    assert set(re.findall(r"lakebackup_\w+", watched)) <= of_sources | of_tasks
    assert of_tasks <= set(re.findall(r"lakebackup_\w+", watched))
    assert of_sources <= set(re.findall(r"`(lakebackup_\w+)", PAGE))
    assert set(re.findall(r'status="(\w+)"', watched)) == set(STATES) - {"OK"}
