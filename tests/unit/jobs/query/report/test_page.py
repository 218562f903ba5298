"""The report's page over an invented catalog: its text, and its look in a browser.

The browser shows the page at four widths, light and dark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Tab, browser, hosts
from tests.support.made_up import DAY, FIRST, NASTY, three_months, write_catalog
from tests.support.pictures import colours, pixels, share

from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query.charts import COLOURS
from lakebackup_jobs.query.report import page as pages
from lakebackup_jobs.query.report.values import facts
from lakebackup_jobs.query.whole_file import write_whole

NOW_MS = FIRST + 89 * DAY + 5 * 3_600_000
WIDTHS = (390, 820, 1280, 1920)
SECTIONS = ["status", "findings", "calendar", "restorable", "durations", "growth", "details"]
CHARTS = ["calendar", "restorable", "topics-with-gaps", "durations", "growth"]
HOSTILE = "<script>x</script>\"'><img src=//canary.invalid onerror=x>\x1b[31m\u202e"


@pytest.fixture(scope="module")
def report_facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("report")
    write_catalog(folder, three_months())
    return facts(CatalogReader.require(str(folder)), NOW_MS)


@pytest.fixture(scope="module")
def page(report_facts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_whole(pages.page(report_facts), file, "The report")
    return file


class Page(HTMLParser):
    """The parts of a page: tags and attributes, ids in order, visible text and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.policy = self.text = self._block_kind = ""
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.attributes |= values.keys()
        self.ids += [str(values["id"])] if "id" in values else []
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(values["content"])
        if tag in ("script", "style"):
            self._block_kind = "data" if values.get("type") == "application/json" else tag
            self.scripts += [""] if self._block_kind == "script" else []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._block_kind = ""

    def handle_data(self, data: str) -> None:
        if self._block_kind == "script":
            self.scripts[-1] += data
        elif not self._block_kind:
            self.text += data


@pytest.fixture(scope="module")
def parsed_page(page: Path) -> Page:
    return Page(page.read_text("utf-8"))


def test_status_comes_first_and_the_sections_in_order(parsed_page: Page) -> None:
    assert [name for name in parsed_page.ids if name in SECTIONS] == SECTIONS
    assert [name.removeprefix("chart-") for name in parsed_page.ids if name.startswith("chart-")] == CHARTS
    assert parsed_page.text.index("0 of 2 sources are fine") < parsed_page.text.index("Restorable until")


def test_the_text_has_the_facts_without_markup_characters(parsed_page: Page) -> None:
    for part in (
        "edge",
        "prod",
        "2026-11-22 03:00 UTC",
        "DAMAGED",
        "gap, purged",
        "sha256 differs",
        "690.8 MB",
    ):
        assert part in parsed_page.text, part
    assert parsed_page.text.count(NASTY) >= 2, "names are shown as they are"
    assert not re.search(r"`|\*\*|^#", parsed_page.text, re.MULTILINE)


def test_every_chart_has_a_table(parsed_page: Page) -> None:
    tables = (
        parsed_page.tags.count("details") - len(set(re.findall(r"Topics of (\w+):", parsed_page.text))) - 1
    )
    assert tables == len(CHARTS)


def test_the_page_loads_nothing_and_runs_only_its_own_scripts(parsed_page: Page) -> None:
    assert not set(parsed_page.tags) & {"img", "link", "iframe", "object", "embed", "image", "use", "a"}
    assert not parsed_page.attributes & {
        "src",
        "href",
        "xlink:href",
        "srcset",
        "onerror",
        "onload",
        "onclick",
    }
    digests = [pages._digest(script) for script in parsed_page.scripts]
    assert len(digests) == 2
    assert parsed_page.policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src '{digests[0]}' '{digests[1]}'"
    )
    own_text = parsed_page.text + parsed_page.scripts[1] + pages._file("page.css")
    assert not re.search(r"https?://|url\(|@import", own_text.replace("http://canary.invalid/", ""))


def hostile(value: Any) -> Any:
    """The same facts, with HOSTILE after every string."""
    if isinstance(value, list):
        return [hostile(element) for element in value]
    if isinstance(value, dict):
        return {key: hostile(element) for key, element in value.items()}
    return value + HOSTILE if isinstance(value, str) else value


def test_no_value_is_interpreted_as_html(report_facts: dict[str, Any]) -> None:
    text = pages.page(hostile(report_facts))
    parsed_page = Page(text)
    assert "img" not in parsed_page.tags
    assert not parsed_page.attributes & {"src", "onerror"}
    assert len(parsed_page.scripts) == 2
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert (
        parsed_page.text.count("<script>x</script>\"'><img src=//canary.invalid onerror=x>\\x1b[31m\\u202e")
        > 50
    )


def test_a_chart_without_data_is_a_sentence(report_facts: dict[str, Any]) -> None:
    no_rows = {"runs": [], "spans": [], "intervals": [], "growth": []}
    parsed_page = Page(pages.page(report_facts | no_rows))
    assert not [name for name in parsed_page.ids if name.startswith("chart-")]
    for sentence in (
        "No runs in the last 91 days.",
        "Nothing can be restored yet.",
        "Nothing is stored yet.",
    ):
        assert sentence in parsed_page.text
    assert [len(script) < 5000 for script in parsed_page.scripts] == [True], "nothing to draw, no Plotly"


def test_the_page_is_small_enough_to_be_mailed(page: Path) -> None:
    assert page.stat().st_size < 1_500_000


def test_the_page_does_not_show_table_versions(parsed_page: Page, report_facts: dict[str, Any]) -> None:
    assert report_facts["versions"]
    assert "topics_seen" not in parsed_page.text
    assert "schema version" not in parsed_page.text


def test_internal_topics_that_are_left_out_are_named(report_facts: dict[str, Any]) -> None:
    rows = [{"source": "prod", "scope": scope, "all_rows": 5} for scope in ("__a", "__b", "__c", "__d")]
    text = " ".join(Page(pages.page(report_facts | {"internal": rows})).text.split())
    assert "Left out: 5 internal topics of prod (__a, __b, __c, …)." in text
    assert "lakebackup report --internal" in text


def test_a_backup_from_the_future_stretches_no_axis(report_facts: dict[str, Any]) -> None:
    row, ahead = report_facts["growth"][-1], 400 * DAY
    future = {**row, "from_ts": row["from_ts"] + ahead, "to_ts": row["to_ts"] + ahead}
    text = pages.page({**report_facts, "growth": [*report_facts["growth"], future]})
    data = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)
    assert data
    _, last = json.loads(data[1])["charts"]["growth"]["layout"]["xaxis"]["range"]
    assert NOW_MS < last <= NOW_MS + DAY


def test_a_catalog_without_backups(tmp_path: Path) -> None:
    write_catalog(tmp_path, [row for row in three_months() if type(row).__name__ == "Migration"])
    parsed_page = Page(pages.page(facts(CatalogReader.require(str(tmp_path)), NOW_MS)))
    assert "Nothing is backed up yet." in parsed_page.text
    assert "Make the first backup" in parsed_page.text
    assert not set(parsed_page.ids) & set(SECTIONS)


def test_findings_and_tables_are_bounded(report_facts: dict[str, Any]) -> None:
    long_facts = {
        **report_facts,
        "findings": report_facts["findings"] * 10,
        "runs": report_facts["runs"] * 20,
    }
    parsed_page = Page(pages.page(long_facts))
    assert f"And {len(long_facts['findings']) - pages.FINDINGS} more" in parsed_page.text
    assert f"The newest {pages.ROWS} of {len(long_facts['runs']):,} rows." in parsed_page.text
    assert parsed_page.tags.count("li") == pages.FINDINGS
    assert parsed_page.tags.count("tr") < 900


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_stands_out(scheme: str) -> None:
    """The contrast, as WCAG 2.2 defines it, is 4.5 or more."""
    blocks = re.findall(r":root \{(.*?)\}", pages._file("page.css"), re.DOTALL)
    assert len(blocks) == 3
    colour = dict(re.findall(r"--([\w-]+): (#\w+)", blocks[["light", "dark", "print"].index(scheme)]))
    pairs = [("ink", ground) for ground in ("page", "card", "code", "good-wash", "bad-wash", "warn-wash")]
    pairs += [(text, ground) for text in ("soft", "bad", "warn", "accent") for ground in ("page", "card")]
    pairs += [(state, f"{state}-wash") for state in ("good", "bad", "warn")]
    for text, ground in pairs:
        light, dark = sorted((_luminance(colour[text]), _luminance(colour[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def tab(scratch: Path) -> Iterator[Tab]:
    with browser(scratch) as tab:
        yield tab


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_each_width(tab: Tab, page: Path, width: int, dark: bool) -> None:
    tab.open(page, width, dark=dark)
    assert tab.console == []
    assert tab.value("document.documentElement.scrollWidth") == width
    assert tab.value("document.querySelectorAll('.chart .cartesianlayer .subplot').length") >= len(CHARTS)
    inside = "[...document.querySelectorAll('.chart')].every((box) => box.scrollWidth <= box.clientWidth)"
    assert tab.value(inside)
    assert tab.value("document.title") == "Backup report, 2026-11-22 08:00 UTC"
    names = tab.value(
        "[...document.querySelectorAll('#chart-calendar .annotation-text')].map((t) => t.textContent)"
    )
    assert names == ["edge", "prod"]
    first = tab.value("document.getElementById('chart-calendar').layout.xaxis.range[0]")
    is_narrow = tab.value("document.querySelector('#calendar .narrow').checkVisibility()")
    assert is_narrow == (width < 670)
    assert first == (NOW_MS // DAY - (27 if is_narrow else 89)) * DAY
    image = pixels(tab.screenshot())
    assert image.shape[1] == width
    assert (image.mean() < 90) == dark
    assert colours(image) > 200
    assert share(image, COLOURS["gap"]) > 0.0005
    assert share(image, COLOURS["succeeded"]) > 0.005


@pytest.mark.browser
def test_a_chart_shows_a_tooltip_under_the_pointer(tab: Tab, page: Path) -> None:
    tab.open(page, 1280)
    cell = "document.querySelector('#chart-calendar .point').getBoundingClientRect()"
    tab.value("document.getElementById('calendar').scrollIntoView()")
    centre_x, cell_y = tab.value(f"[{cell}.left + {cell}.width / 2, {cell}.top + 8]")
    for x in (centre_x - 30, centre_x):
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=cell_y)
    hover_text = "document.querySelector('#chart-calendar .hoverlayer').textContent"
    look = f"const look = () => {hover_text} ? done({hover_text}) : setTimeout(look, 20)"
    assert tab.value(f"new Promise((done) => {{ {look}; look(); }})") == "edge2026-08-25 UTC: 1 succeeded"


@pytest.mark.browser
def test_the_page_prints_on_white_paper(tab: Tab, page: Path) -> None:
    tab.open(page, 1280, dark=True)
    sheets = len(re.findall(rb"/Type\s*/Page\b", tab.pdf()))
    assert 2 <= sheets <= 6
    tab.open(page, 760, dark=True, media="print")
    assert pixels(tab.screenshot()).mean() > 200, "paper is white in the dark too"
    assert not tab.value(
        "[...document.querySelectorAll('button, summary')].some((it) => it.checkVisibility())"
    )
    assert tab.console == []


@pytest.mark.browser
def test_a_chart_shows_a_name_without_interpreting_it(
    tab: Tab, report_facts: dict[str, Any], tmp_path: Path
) -> None:
    runs = [
        {**row, "source": f"<b>{row['source']}</b> <a href='http://canary.invalid/'>x</a>"}
        for row in report_facts["runs"]
    ]
    file = tmp_path / "report.html"
    write_whole(pages.page({**report_facts, "runs": runs}), file, "The report")
    tab.open(file, 820)
    assert tab.value("document.querySelectorAll('.chart a, .chart tspan[style*=bold]').length") == 0
    text = tab.value("document.querySelector('#chart-calendar .annotation-text').textContent")
    assert text.startswith("<b>edge</b> <a href='http:")


@pytest.mark.browser
def test_the_page_makes_no_network_request(page: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.open(page, 1280)
    assert "canary.invalid" not in hosts(tmp_path)


@pytest.mark.browser
def test_the_browser_notices_what_a_careless_page_does(tmp_path: Path) -> None:
    """The checks above can fail: a careless page runs a script and makes a request."""
    careless = tmp_path / "careless.html"
    careless.write_text(f"<title>none</title>{NASTY}<script>nowhere()</script>", "utf-8")
    with browser(tmp_path) as tab:
        tab.open(careless, 390)
        assert tab.value("document.title") == "run"
        assert any("nowhere" in text for text in tab.console)
    assert "canary.invalid" in hosts(tmp_path)
