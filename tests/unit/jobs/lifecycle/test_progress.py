from __future__ import annotations

import io
import json
import os
import threading
from typing import Any

import pytest
from rich.cells import cell_len

from lakebackup_jobs.lifecycle import progress
from lakebackup_jobs.lifecycle.progress import JsonReporter, Reporter, TerminalReporter, display, reporter
from lakebackup_jobs.runtime.terminal_table import Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def work(report: Reporter, total_bytes: int | None = 4_000_000) -> None:
    with report:
        report.start(1000, total_bytes, "backup")
        report.update(500, 2_000_000)
        report.note("half of it")
        report.warning("topic orders: a gap")
        report.update(1000, 4_000_000)
        report.result({"backup_id": "20261121T140500Z-00000001", "bytes": 4_000_000})


def test_the_stream_decides() -> None:
    assert isinstance(reporter(as_json=True, out=Terminal(), err=Terminal()), JsonReporter)
    assert isinstance(reporter(as_json=False, out=io.StringIO(), err=Terminal()), TerminalReporter)
    assert type(reporter(as_json=False, out=Terminal(), err=io.StringIO())) is progress.Reporter


def test_a_pipe_gets_the_result_and_the_log_the_warning() -> None:
    out, err = io.StringIO(), io.StringIO()
    work(reporter(as_json=False, out=out, err=err))
    assert out.getvalue().split() == ["backup", "id", "20261121T140500Z-00000001", "bytes", "4.0", "MB"]
    assert err.getvalue() == "warning: topic orders: a gap\n"


@pytest.mark.parametrize("total_bytes", [4_000_000, None])
def test_a_terminal_sees_rate_and_what_is_left(total_bytes: int | None) -> None:
    out, err = io.StringIO(), Terminal()
    work(TerminalReporter(out, err), total_bytes)
    shown = err.getvalue()
    for part in (
        "backup",
        "1,000 records, 4.0 MB",
        "/s",
        "left",
        "half of it",
        "warning: topic orders: a gap",
    ):
        assert part in shown
    assert "\x1b[?25h" in shown, "the cursor is shown again"
    assert "20261121T140500Z-00000001" in out.getvalue()


def test_a_failure_takes_the_bar_away() -> None:
    err = Terminal()
    report = TerminalReporter(io.StringIO(), err)
    with report:
        report.start(10, None)
        assert "\x1b[?25l" in err.getvalue(), "the cursor is hidden while the bar moves"
    assert "\x1b[?25h" in err.getvalue()
    shown = len(err.getvalue())
    report.update(11, 11)
    assert len(err.getvalue()) == shown


def test_what_is_counted_has_its_name_and_no_more_is_said_than_is_known() -> None:
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.start(10, None, "optimize", "tables")
        report.update(4, 0)
    assert "4 tables " in err.getvalue()
    assert "tables/s" in err.getvalue()
    assert "0 bytes" not in err.getvalue()


def test_what_is_waited_for_is_there_at_once_and_goes_with_the_next_output() -> None:
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.wait("planning")
        assert err.getvalue() == "\x1b[2mplanning …\x1b[0m"
        report.wait("starting \x1b]0;Spark")
        assert err.getvalue().endswith("\r\x1b[K\x1b[2mstarting \\x1b]0;Spark …\x1b[0m")
        report.note("a note")
        assert "\r\x1b[Ka note" in err.getvalue().replace("\x1b[2m", "").replace("…\x1b[0m", "")
    written = len(err.getvalue())
    report.clear()
    assert len(err.getvalue()) == written, "nothing is left to take away"


def test_a_bar_says_what_it_waits_for_until_there_is_progress() -> None:
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.start(10, None, "backup")
        report.wait("starting Spark")
        report.update(0, 0)
        assert "starting Spark" in err.getvalue()
        report.update(5, 1)
    assert err.getvalue().rindex("backup") > err.getvalue().rindex("starting Spark")


def test_what_takes_long_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    bars = threading.Event()
    start = TerminalReporter.start

    def started(report: TerminalReporter, *stage: Any) -> None:
        start(report, *stage)
        bars.set()

    monkeypatch.setattr(TerminalReporter, "start", started)
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.wait("comparing")
        assert bars.wait(30)
        assert "0:00:0" in err.getvalue(), "how long it takes already"
    assert "\x1b[?25h" in err.getvalue(), "the cursor is shown again"


def test_a_dumb_terminal_gets_no_line_that_would_have_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.wait("planning")
    assert err.getvalue() == ""


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_of_a_result_fit(width: int) -> None:
    rows = [{"topic": "payments" * 20, "end_ts": 0, "state": "failed", "text": "word " * 40}]
    screen, out = Screen(width, colours=False), io.StringIO()
    progress.print_result({"restore_id": "20261121T140500Z-00000001", "topics": rows}, out, screen)
    assert all(cell_len(line) <= width for line in out.getvalue().replace("\x1b[1m", "").splitlines())
    assert "1970-01-01 " in out.getvalue(), "an age"


def test_json_lines() -> None:
    out, err = io.StringIO(), io.StringIO()
    work(JsonReporter(out, err))
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["start", "progress", "note", "warning", "result"]
    assert events[0] == {
        "event": "start", "v": 1, "stage": "backup", "unit": "records", "total": 1000,
        "total_bytes": 4_000_000,
    }  # fmt: skip
    progress = dict(events[1])
    assert progress.pop("elapsed_s") >= 0
    assert progress == events[0] | {"event": "progress", "done": 500, "bytes": 2_000_000}
    assert events[-1] == {
        "event": "result",
        "v": 1,
        "backup_id": "20261121T140500Z-00000001",
        "bytes": 4_000_000,
    }
    assert err.getvalue() == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_the_reader_of_a_result_may_leave(as_json: bool) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as out:  # noqa: PTH123 - of a descriptor
        report = reporter(as_json=as_json, out=out, err=io.StringIO())
        report.result({"rows": [{"n": number} for number in range(100_000)]})
        report.result({"bytes": 1})


def test_a_result_with_tables() -> None:
    out = io.StringIO()
    rows = [{"topic": "[red]orders", "end_ts": 0}, {"topic": "payments" * 20, "end_ts": None}]
    told = {"dry_run": True, "none": None, "topics": rows, "empty": [], "select": "SELECT 1\nFROM t"}
    progress.print_result(told, out)
    text = out.getvalue()
    assert "[red]orders" in text, "markup is data here"
    assert "payments" * 20 in text, "a pipe has no width"
    assert "1970-01-01T00:00:00.000Z" in text
    assert "none" not in text
    assert "empty" not in text
    assert "FROM t" in text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("bytes", 1500, "1.5 kB"),
        ("raw_bytes", 1, "1 byte"),
        ("end_ts", 0, "1970-01-01T00:00:00.000Z"),
        ("finished_at", 1_000_000, "1970-01-01T00:00:01.000Z"),
        ("elapsed_s", 1.234, "1.23 s"),
        ("ratio", 0.5, "0.5"),
        ("append", False, "no"),
        ("note", None, ""),
        ("entries", 1_000_000, "1000000"),
        ("topics", ["a", "b"], "a, b"),
        ("maps", {"a": "b"}, "a=b"),
    ],
)
def test_values_for_people(name: str, value: object, text: str) -> None:
    assert display(name, value) == text
