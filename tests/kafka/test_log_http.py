"""Log tasks over HTTP: the verbs, the token, and what Prometheus gets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.support.change_feed import ChangeFeed, produce
from tests.support.log_tasks import LogTask, busy

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main
from lakebackup_jobs.logs import task
from lakebackup_jobs.logs.control.http_api import app_of, serving
from lakebackup_jobs.logs.control.metrics import LogCollector, serve
from lakebackup_jobs.logs.control.verbs import Place
from lakebackup_jobs.logs.task import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"


def started(lab: Lab, topic: str, **changes: Any) -> LogTask:
    """A task that is to run, without a job."""
    made = LogTask(lab, topic, **changes)
    made.begin()
    return made


@pytest.fixture
def api(lab: Lab) -> Iterator[httpx.Client]:
    lab.make_catalog()
    with (
        serving(app_of(Place(str(lab.folder), None, {}), "s3cret"), "127.0.0.1", 0) as (url, _),
        httpx.Client(base_url=url, headers={"Authorization": "Bearer s3cret"}, timeout=60) as client,
    ):
        yield client


def samples(text: str) -> dict[tuple[str, str, str], float]:
    return {
        (s.name, s.labels["task"], s.labels.get("reason", "")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_verbs_over_http(api: httpx.Client, lab: Lab, topic: Callable[..., str]) -> None:
    name, feed = topic("feed", partitions=2), ChangeFeed(partitions=2)
    busy(feed, feed.create_table("shop", "orders"), 10)
    feed.send(lab.bootstrap, name)
    settings = {"feed": "br", "bootstrap": lab.bootstrap, "topics": [name], "flush_every_s": 0.2}
    assert api.get("/log/tasks").json() == []
    made = api.post("/log/tasks", json={"name": "lab", "settings": settings})
    assert (made.status_code, made.json()["state"], made.json()["topics_now"]) == (201, "running", [name])
    job = LogTask(lab, name)
    with job.run():
        job.until_captured(feed.now)
        assert api.post("/log/tasks/lab/pause").json()["state"] == "paused"
        again = api.post("/log/tasks", json={"name": "lab", "settings": settings})
        assert (again.status_code, again.json()["error"]) == (409, "Failed")
        assert again.json()["task"]["stores"][0]["ok"]
        assert api.post("/log/tasks/lab/resume").json()["state"] == "running"
        found = samples(api.get("/metrics").text)
        assert found["lakebackup_log_checkpoint_ts", "lab", ""] == feed.now
        assert found["lakebackup_log_at_work", "lab", ""] == 1
        assert found["lakebackup_log_events_total", "lab", ""] > 20
        assert found["lakebackup_log_last_success_timestamp_seconds", "lab", ""] > 1.6e9
        # What cannot be read pauses the task, which says where it is and goes no further.
        produce(lab.bootstrap, name, [(1, b"no event")])
        job.until(lambda now: bool(now["detail"]), "the damage is told")
        told = api.get("/log/tasks/lab").json()
        assert (told["state"], told["errors"], told["checkpoint_ts"]) == ("paused", 1, feed.now)
        assert f"{name}, partition 1, offset {len(feed.sent[1])}" in told["detail"]
        assert told["stores"][0]["error"].startswith("task paused itself: ")
        assert samples(api.get("/metrics").text)["lakebackup_log_paused", "lab", "error"] == 1
        stopped = api.post("/log/tasks/lab/stop")
        assert (stopped.json()["state"], stopped.json()["lost"]) == ("stopped", {name: 1})
    assert [t["task"] for t in api.get("/log/tasks").json()] == ["lab"]
    assert api.post("/log/tasks/lab/stop").status_code == 409
    assert api.get("/log/tasks/nobody").status_code == 404
    bad = {"name": "x", "settings": settings | {"filters": ["nodot"]}}
    assert (api.post("/log/tasks", json=bad).status_code, bad["name"]) == (422, "x")
    assert api.post("/log/tasks", json={"name": "x", "settings": {"feed": "csv"}}).status_code == 422


def test_the_token_is_asked_for(api: httpx.Client) -> None:
    for header in ({"Authorization": "Bearer other"}, {"Authorization": ""}):
        for path in ("/log/tasks", "/metrics", "/openapi.json"):
            assert api.get(path, headers=header).status_code == 401
        assert api.post("/log/tasks/lab/stop", headers=header).status_code == 401


def test_without_a_token_pages_in_a_browser_get_nothing(lab: Lab) -> None:
    lab.make_catalog()
    with serving(app_of(Place(str(lab.folder), None, {}), None), "127.0.0.1", 0) as (url, runs):
        assert httpx.get(f"{url}/log/tasks").json() == []
        elsewhere = httpx.post(f"{url}/log/tasks/lab/stop", headers={"Origin": "https://example.org"})
        assert elsewhere.status_code == 403
        assert runs()
        port = int(url.rpartition(":")[2])
        with pytest.raises(EnvironmentProblem, match=f"Cannot listen at 127.0.0.1:{port}"):
            serving(app_of(Place(str(lab.folder), None, {}), None), "127.0.0.1", port).__enter__()
    code = main(["serve", "http", "--from", str(lab.folder), "--host", "0.0.0.0"])
    assert code == UsageProblem.exit_code


def test_why_a_task_is_paused_also_when_the_catalog_does_not_know(lab: Lab) -> None:
    made = started(lab, "feed")
    trouble = Trouble()
    with serve(LogCollector(str(lab.folder), None, "lab", trouble), "127.0.0.1", 0) as port:

        def paused() -> dict[str, float]:
            found = samples(httpx.get(f"http://127.0.0.1:{port}/metrics").text)
            return {reason: value for (name, _, reason), value in found.items() if name.endswith("_paused")}

        assert paused() == {"asked": 0, "error": 0}
        trouble.text = "the disk is full"
        assert paused() == {"asked": 0, "error": 1}
        trouble.text = None
        task.record(str(lab.folder), None, "lab", "paused", made.settings)
        assert paused() == {"asked": 1, "error": 0}
        task.record(str(lab.folder), None, "lab", "paused", made.settings, "the disk is full")
        assert paused() == {"asked": 0, "error": 1}


def test_dashboard_and_alerts_name_metrics_that_there_are(lab: Lab) -> None:
    lab.make_catalog()
    families = list(LogCollector(str(lab.folder), None).collect())
    there = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    board = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    watched = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = set(re.findall(r"lakebackup_log_\w+", " ".join([*shown, *watched])))
    assert named <= there
    assert named == there
    documented = (MONITORING / "README.md").read_text()
    for rule in rules["groups"][0]["rules"]:
        assert f"| {rule['alert']} |" in documented
    assert CatalogReader.require(str(lab.folder)).rows("log_status", source=None) == []
