"""A real Prometheus, configured as docs/monitoring says: it understands each figure, panel and alert.

It scrapes `serve http`, and the file of `status --metrics` through the node exporter.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kafka_truth import until
from tests.support.monitored import put_monitored
from tests.support.private import private_file
from tests.support.programs import program
from tests.support.prometheus import Prometheus, child, prometheus

from lakebackup_jobs.cli import main
from lakebackup_jobs.runtime.child import free_port

pytestmark = pytest.mark.long

MONITORING = Path(__file__).parents[2] / "docs/monitoring"


def job(url: str, token: Path) -> dict[str, Any]:
    """The page's scrape job, with this server and this token."""
    (block,) = re.findall(
        r"```yaml\n(scrape_configs:.*?)```", (MONITORING / "README.md").read_text(), re.DOTALL
    )
    (scrape_config,) = yaml.safe_load(block)["scrape_configs"]
    scrape_config["authorization"]["credentials_file"] = str(token)
    scrape_config["static_configs"] = targets(url)
    return dict(scrape_config)


def targets(url: str) -> list[dict[str, list[str]]]:
    return [{"targets": [url.removeprefix("http://").partition("/")[0]]}]


@pytest.fixture
def prom(tmp_path: Path) -> Iterator[Prometheus]:
    exporter = program("prometheus-node-exporter", "node_exporter", package="prometheus-node-exporter")
    root, files, token = tmp_path / "backups", tmp_path / "node_exporter", tmp_path / "token"
    put_monitored(root)
    files.mkdir()
    main(["status", "--repo", str(root), "--metrics", str(files / "lakebackup.prom")])
    private_file(token, b"s3cret")
    serve_port, node_port = free_port(), free_port()
    serve = [
        sys.executable, "-m", "lakebackup_jobs", "serve", "http", "--repo", root, "--port", f"{serve_port}",
        "--token-file", token,
    ]  # fmt: skip
    export = [
        exporter, "--collector.disable-defaults", "--collector.textfile",
        f"--collector.textfile.directory={files}", f"--web.listen-address=127.0.0.1:{node_port}",
    ]  # fmt: skip
    with (
        child(tmp_path / "serve.log", f"http://127.0.0.1:{serve_port}/metrics", serve) as server,
        child(tmp_path / "node.log", f"http://127.0.0.1:{node_port}/metrics", export) as textfile,
        prometheus(
            tmp_path,
            [job(server, token), {"job_name": "node", "static_configs": targets(textfile)}],
            MONITORING / "alerts.yml",
        ) as started_prom,
    ):
        until(lambda: started_prom.down() == {}, "both targets are up")
        yield started_prom


def test_every_panel_has_data_and_every_alert_its_state(prom: Prometheus) -> None:
    board = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$task", ".*").replace("$__rate_interval", "1m")
            until(lambda prom=prom, query=expression: prom.ask(query) != [], f"{expression} has a series")
    for group in prom.request("rules")["groups"]:
        for rule in group["rules"]:
            assert (rule["health"], rule.get("lastError")) == ("ok", None), rule
            prom.ask(rule["query"])
    expected = {
        ("BackupFailed", "orders", "firing"),
        ("BackupUnverified", "shop", "pending"),
        ("LogTaskGone", "shop", "pending"),
    }
    until(lambda: prom.alerts() == expected, f"the alerts are {expected}", 60)
    # The exporter read the file and understood all of it.
    assert [series["value"][1] for series in prom.ask("node_textfile_scrape_error")] == ["0"]
    file, api = (
        {
            (series["metric"]["__name__"], series["metric"]["source"], series["metric"].get("status"))
            for series in prom.ask(f'{{__name__=~"lakebackup_.*", source!="", job="{name}"}}')
        }
        for name in ("node", "lakebackup")
    )
    assert file == api != set()
