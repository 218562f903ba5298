"""The report on a catalog that was made up: its facts, its page, and the page in a browser."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.support import browser
from tests.support.made_up import DAY, FIRST, NASTY, put, three_months
from tests.support.pictures import colours, pixels, share

from lakebackup.errors import EnvironmentProblem
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main
from lakebackup_jobs.query import report
from lakebackup_jobs.query.charts import COLOURS
from lakebackup_jobs.query.whole_file import write_whole

NOW = FIRST + 89 * DAY + 5 * 3_600_000
RED = COLOURS["gap"]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    put(folder, three_months())
    return folder


@pytest.fixture(scope="module")
def facts(catalog: Path) -> dict[str, Any]:
    return report.facts(CatalogReader.require(str(catalog)), NOW)


@pytest.fixture(scope="module")
def page(facts: dict[str, Any], catalog: Path) -> Path:
    file = catalog / "report.html"
    write_whole(report.page(facts), file, "The report")
    return file


def test_what_is_protected_until_when(facts: dict[str, Any]) -> None:
    assert [(row["source"], row["backups"], row["topics"], row["lag_ms"]) for row in facts["sources"]] == [
        ("edge", 45, 1, NOW - FIRST - 44 * DAY),
        ("prod", 90, 5, 5 * 3_600_000),
    ]
    worst = [row["scope"] for row in facts["topics"] if row["gaps"]]
    assert sorted(worst) == ["invoices", "orders", "payments"]


def test_what_is_missing(facts: dict[str, Any]) -> None:
    found = {(row["scope"], row["status"], row["reason"]) for row in facts["gaps"]}
    assert found == {
        ("orders", "gap", "purged"),
        ("payments", "gap", "purged"),
        ("invoices", "gap", "damaged"),
        *((scope, "fork", "out_of_sync") for scope in ("orders", "payments", "clicks", "invoices", NASTY)),
    }
    damaged = next(row for row in facts["faults"] if row["reason"] == "damaged")
    assert (damaged["backups"], damaged["path"].split("/")[3]) == (3, "invoices")
    assert [row["kind"] for row in facts["findings"]] == ["bad", "bad", "note"]
    (check,) = facts["checks"]
    assert (check["damaged"], check["ok"]) == (1, check["objects"] - 1)


def test_pictures_get_few_rows_whatever_there_is(facts: dict[str, Any]) -> None:
    assert len(facts["chains"]) <= 2 * report.CHAINS
    assert len(facts["growth"]) == 135
    assert {row["status"] for row in facts["intervals"]} == {"restorable", "gap", "fork", "pruned"}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone(page: Path) -> None:
    found = _Page(page.read_text("utf-8"))
    assert not found.tags & {"script", "img", "link", "iframe", "object", "embed", "image", "use", "a"}
    assert not found.attributes & {"src", "href", "xlink:href", "srcset", "onerror", "onload"}
    assert "url(" not in found.text.replace(NASTY, "")
    assert found.text.count(NASTY) >= 2, "names are shown as they are"
    for part in ("edge", "prod", "2026-11-22 03:00:00", "gap, purged", "sha256 differs", "690.8 MB"):
        assert part in found.text, part


HOSTILE = "<script>x</script>\"'><img src=//canary.invalid onerror=x>\x1b[31m\u202e"


def hostile(value: Any) -> Any:
    """The same facts, with such a name in every text."""
    if isinstance(value, list):
        return [hostile(item) for item in value]
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    return value + HOSTILE if isinstance(value, str) else value


def test_no_field_of_the_page_is_obeyed(facts: dict[str, Any]) -> None:
    some = {name: rows for name, rows in facts.items() if not isinstance(rows, list)}
    for name in facts.keys() - some.keys():  # of one source: pictures take time
        some[name] = [row for row in facts[name] if row.get("source") != "edge"][:30]
    text = report.page(hostile(some))
    found = _Page(text)
    assert not found.tags & {"script", "img"}
    assert not found.attributes & {"src", "onerror"}
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert found.text.count("<script>x</script>\"'><img src=//canary.invalid onerror=x>\\x1b[31m\\u202e") > 50


@pytest.mark.browser
def test_in_a_browser(page: Path, tmp_path: Path) -> None:
    text, hosts = browser.dom(page, tmp_path)
    assert "<title>Backup report, 2026-11-22 08:00:00 UTC</title>" in text
    assert NASTY.replace("<", "&lt;").replace(">", "&gt;") in text
    assert "canary.invalid" not in hosts
    image = pixels(browser.screenshot(page, tmp_path, 1120, 3600))
    assert colours(image) > 200
    assert share(image, RED) > 0.0008
    assert share(image, COLOURS["fork"]) > 0.0005


@pytest.mark.browser
def test_the_browser_would_have_noticed(tmp_path: Path) -> None:
    """The same checks see what they look for on a page that is not careful."""
    careless = tmp_path / "careless.html"
    careless.write_text(f"<title>none</title>{NASTY}", "utf-8")
    text, hosts = browser.dom(careless, tmp_path)
    assert "<title>run</title>" in text
    assert "canary.invalid" in hosts


def whole(folder: Path) -> CatalogReader:
    """A catalog of which nothing is missing."""
    rows = [row for row in three_months() if getattr(row, "source", "") != "prod"]
    put(folder, [row for row in rows if type(row).__name__ not in ("Check", "Removal", "Floor")])
    return CatalogReader.require(str(folder))


def test_nothing_is_bad_when_nothing_is_missing(tmp_path: Path) -> None:
    found = report.facts(whole(tmp_path), NOW)
    assert [row["kind"] for row in found["findings"]] == ["note"]
    assert "verify" in found["findings"][0]["text"]


@pytest.mark.long
@pytest.mark.browser
def test_the_page_has_no_red_when_nothing_is_missing(tmp_path: Path) -> None:
    write_whole(report.page(report.facts(whole(tmp_path), NOW)), tmp_path / "report.html", "The report")
    assert share(pixels(browser.screenshot(tmp_path / "report.html", tmp_path, 1120, 1600)), RED) == 0


def test_a_catalog_without_backups(tmp_path: Path) -> None:
    put(tmp_path, [row for row in three_months() if type(row).__name__ == "Migration"])
    found = report.facts(CatalogReader.require(str(tmp_path)), NOW)
    assert found["findings"] == [{"kind": "note", "text": "The catalog holds no backup yet."}]
    assert "Nothing is backed up" in report.page(found)


def test_the_command(catalog: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--repo", str(catalog)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for part in ("restorable_ts", "purged", "invoices", "2026-11-22T03:00:00.000Z", "690.8 MB"):
        assert part in said.out


def test_the_command_needs_no_java(catalog: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakebackup_jobs", "report", "--repo", str(catalog), "--json"]
    command += ["--html", str(tmp_path / "report.html")]
    env = {"PATH": "", "HOME": str(tmp_path)}  # no Java to be found
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert {row["source"] for row in facts["storage"]} == {"edge", "prod"}
    assert "Not everything can be restored" in (tmp_path / "report.html").read_text("utf-8")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="No such file"):
        write_whole("", tmp_path / "nowhere" / "report.html", "The report")
