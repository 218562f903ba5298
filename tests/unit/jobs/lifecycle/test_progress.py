from __future__ import annotations

import io
import json

import pytest

from lakebackup_jobs.lifecycle import progress
from lakebackup_jobs.lifecycle.progress import JsonReporter, Reporter, TerminalReporter, display, reporter


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


def test_json_lines() -> None:
    out, err = io.StringIO(), io.StringIO()
    work(JsonReporter(out, err))
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["start", "progress", "note", "warning", "result"]
    assert events[0] == {"event": "start", "stage": "backup", "total_records": 1000, "total_bytes": 4_000_000}
    progress = dict(events[1])
    assert progress.pop("elapsed_s") >= 0
    assert progress == events[0] | {"event": "progress", "records": 500, "bytes": 2_000_000}
    assert events[-1] == {"event": "result", "backup_id": "20261121T140500Z-00000001", "bytes": 4_000_000}
    assert err.getvalue() == ""


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
