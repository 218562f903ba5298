from __future__ import annotations

import io
import json
import os
import threading

import pytest
from rich.cells import cell_len
from rich.text import Text

from lakebackup_jobs.lifecycle import progress
from lakebackup_jobs.lifecycle.progress import JsonReporter, Reporter, TerminalReporter, display, reporter
from lakebackup_jobs.runtime.java.downloads import Download, announce
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
    assert isinstance(reporter(as_json=True, stream=Terminal(), err=Terminal()), JsonReporter)
    assert isinstance(reporter(as_json=False, stream=io.StringIO(), err=Terminal()), TerminalReporter)
    assert type(reporter(as_json=False, stream=Terminal(), err=io.StringIO())) is progress.Reporter


def test_a_pipe_gets_the_result_and_the_log_the_warning() -> None:
    output, err = io.StringIO(), io.StringIO()
    work(reporter(as_json=False, stream=output, err=err))
    assert output.getvalue().split() == ["backup", "id", "20261121T140500Z-00000001", "bytes", "4.0", "MB"]
    assert err.getvalue() == "warning: topic orders: a gap\n"


@pytest.mark.parametrize("total_bytes", [4_000_000, None])
def test_a_terminal_sees_the_line_and_notes_beside_it(total_bytes: int | None) -> None:
    output, err = io.StringIO(), Terminal()
    work(TerminalReporter(output, err), total_bytes)
    text = err.getvalue()
    for part in (
        "backing up topics: ",
        "0%",
        "s elapsed",
        "half of it",
        "warning: topic orders: a gap",
    ):
        assert part in text
    assert "\x1b[?25h" in text, "the cursor is shown again"
    assert "20261121T140500Z-00000001" in output.getvalue()


def test_a_failure_takes_the_bar_away() -> None:
    err = Terminal()
    report = TerminalReporter(io.StringIO(), err)
    with report:
        report.start(10, None)
        assert "\x1b[?25l" in err.getvalue(), "the cursor is hidden while the bar moves"
    assert "\x1b[?25h" in err.getvalue()
    length = len(err.getvalue())
    report.update(11, 11)
    assert len(err.getvalue()) == length


def test_the_counted_unit_is_named_and_unknown_amounts_are_left_out() -> None:
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.start(10, None, "optimize", "tables")
        report.update(4, 0)
        report.wait("publishing")
        report.update(5, 0)
        report.start(1, None, "backup")
    assert "optimizing tables: 0 of 10 tables" in err.getvalue()
    assert "0 bytes" not in err.getvalue()


def test_a_wait_is_shown_at_once_and_erased_by_the_next_output() -> None:
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.wait("planning")
        assert err.getvalue() == "\x1b[2mplanning …\x1b[0m"
        report.wait("starting \x1b]0;Spark")
        assert err.getvalue().endswith("\r\x1b[K\x1b[2mstarting \\x1b]0;Spark …\x1b[0m")
        report.note("a note")
        assert "\r\x1b[Ka note" in err.getvalue().replace("\x1b[2m", "").replace("…\x1b[0m", "")
    length = len(err.getvalue())
    report.clear()
    assert len(err.getvalue()) == length, "nothing is left to take away"


def test_a_bar_says_what_it_waits_for_until_there_is_progress() -> None:
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.start(10, None, "backup")
        report.wait("starting Spark")
        report.update(0, 0)
        assert "starting Spark" in err.getvalue()
        report.update(5, 1)
        report._draw()
    assert err.getvalue().rindex("backing up") > err.getvalue().rindex("starting Spark")


def test_a_long_wait_gets_a_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    drawn = threading.Event()
    draw = TerminalReporter._draw

    def draw_and_signal(report: TerminalReporter) -> None:
        draw(report)
        drawn.set()

    monkeypatch.setattr(TerminalReporter, "_draw", draw_and_signal)
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.wait("comparing")
        assert drawn.wait(30)
        assert "comparing: 0 s elapsed" in err.getvalue()
    assert "\x1b[?25h" in err.getvalue(), "the cursor is shown again"


def test_a_dumb_terminal_gets_no_line_that_would_have_to_be_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.wait("planning")
    assert err.getvalue() == ""


@pytest.mark.parametrize("width", [10, 20, 40, 80, 160])
def test_a_line_never_wraps(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    err = Terminal()
    with TerminalReporter(io.StringIO(), err) as report:
        report.start(1000, 4_000_000_000, "backup")
        report.update(500, 2_000_000_000)
        report._draw()
    lines = Text.from_ansi(err.getvalue().replace("\r", "\n")).plain.splitlines()
    assert lines
    assert all(cell_len(line) <= width for line in lines)
    assert ("━" in err.getvalue()) is (width >= 80), "a bar where there is room"


def test_a_log_gets_a_line_a_minute_of_work_whose_total_is_known() -> None:
    seconds, err = [0.0], io.StringIO()
    with Reporter(io.StringIO(), err, clock=lambda: seconds[0]) as report:
        report.start(None, 60_000_000, "verify", "files")
        for _ in range(150):
            seconds[0] += 1
            report.update(round(seconds[0]), round(seconds[0]) * 100_000)
        report.start(None, None, "follow")
        seconds[0] += 1000
        report.update(1, 1)
    assert err.getvalue() == (
        "verifying files: 6.0 of 60.0 MB, 10%, 60 files, 100.0 kB/s, 1 min 0 s elapsed, 9 min 0 s left\n"
        "verifying files: 12.0 of 60.0 MB, 20%, 120 files, 100.0 kB/s, 2 min 0 s elapsed, 8 min 0 s left\n"
    )


def test_a_download_is_reported_while_the_reporter_listens() -> None:
    err = io.StringIO()
    with Reporter(io.StringIO(), err):
        announce(Download("JVM libraries", 0, 48, 0, 34_000_000))
        announce(None)
    announce(Download("JVM libraries", 0, 48, 0, 34_000_000))
    assert err.getvalue() == "downloading JVM libraries: 0 bytes of 34.0 MB, 0%, 0 s elapsed\n"


def test_a_download_has_events_of_its_own() -> None:
    output = io.StringIO()
    with JsonReporter(output, io.StringIO()):
        announce(Download("JVM libraries", 0, 2, 0, 10))
        announce(None)
    start, progress = (json.loads(line) for line in output.getvalue().splitlines())
    assert start == {
        "event": "start", "v": 1, "stage": "download", "unit": "files", "name": "JVM libraries", "total": 2,
        "total_bytes": 10,
    }  # fmt: skip
    assert progress.pop("elapsed_s") >= 0
    assert progress == start | {"event": "progress", "done": 0, "bytes": 0}


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_of_a_result_fit(width: int) -> None:
    rows = [{"topic": "payments" * 20, "end_ts": 0, "state": "failed", "text": "word " * 40}]
    screen, output = Screen(width, colours=False), io.StringIO()
    progress.print_result({"restore_id": "20261121T140500Z-00000001", "topics": rows}, output, screen)
    assert all(cell_len(line) <= width for line in output.getvalue().replace("\x1b[1m", "").splitlines())
    assert "1970-01-01 " in output.getvalue(), "an age"


def test_json_lines() -> None:
    output, err = io.StringIO(), io.StringIO()
    work(JsonReporter(output, err))
    events = [json.loads(line) for line in output.getvalue().splitlines()]
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
    with open(write, "w") as output:  # noqa: PTH123 - of a descriptor
        report = reporter(as_json=as_json, stream=output, err=io.StringIO())
        report.result({"rows": [{"n": number} for number in range(100_000)]})
        report.result({"bytes": 1})


def test_a_result_with_tables() -> None:
    output = io.StringIO()
    rows = [{"topic": "[red]orders", "end_ts": 0}, {"topic": "payments" * 20, "end_ts": None}]
    result = {"dry_run": True, "none": None, "topics": rows, "empty": [], "select": "SELECT 1\nFROM t"}
    progress.print_result(result, output)
    text = output.getvalue()
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
