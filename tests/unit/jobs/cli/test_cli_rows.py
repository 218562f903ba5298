from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup_jobs.cli.output.errors import report
from lakebackup_jobs.cli.output.rows import write
from lakebackup_jobs.lifecycle.progress import print_result, reporter

AT = datetime(2026, 11, 21, 14, 5, tzinfo=UTC)
TABLE = pa.table(
    {
        "path": ["a+0-1.data", 'quo"ted, [bold]', None],
        "bytes": pa.array([1500, 0, None], pa.int64()),
        "at_utc": pa.array([AT, None, None], pa.timestamp("us", "UTC")),
        "key": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "ok": pa.array([True, False, None]),
        "maps": pa.array([{"x": 1}, None, None], pa.struct([("x", pa.int32())])),
    }
)


def reader(table: pa.Table = TABLE, size: int = 2) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(), as_json=True, as_csv=False)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {
        "path": "a+0-1.data", "bytes": 1500, "at_utc": "2026-11-21T14:05:00Z", "key": "00ff", "ok": True,
        "maps": {"x": 1},
    }  # fmt: skip
    assert rows[2] == dict.fromkeys(TABLE.schema.names) | {"key": ""}


def test_csv(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(), as_json=False, as_csv=True)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [
        TABLE.schema.names,
        ["a+0-1.data", "1500", "2026-11-21T14:05:00Z", "00ff", "true", '{"x": 1}'],
        ['quo"ted, [bold]', "0", "", "", "false", ""],
        ["", "", "", "", "", ""],
    ]


def test_csv_holds_no_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    formulas = ["=1+1", "+cmd|x", "-2+3", "@SUM(1)", "\t=1", "\r=1"]
    harmless = ["-5", "+3.5", "a=b", "", None, "'=1"]
    table = pa.table({"text": [*formulas, *harmless], "n": [-1.5] * 12})
    write(reader(table), as_json=False, as_csv=True)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    shown = [*(f"'{text}" for text in formulas), *(text or "" for text in harmless)]
    assert [row[0] for row in rows[1:]] == shown
    assert {row[1] for row in rows[1:]} == {"-1.5"}


HOSTILE = "\x1b]0;title\x07a\x9b31m\u202eb\nc"
SHOWN = r"\x1b]0;title\x07a\x9b31m\u202eb\nc"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_others_wrote_is_shown_and_not_obeyed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"name": [HOSTILE]})
    for columns in (None, ("name",)):
        write(reader(table), as_json=False, as_csv=False, columns=columns)
        assert SHOWN in capsys.readouterr().out
    print_result({HOSTILE: HOSTILE, "rows": [{HOSTILE: {HOSTILE: [HOSTILE]}}]}, sys.stdout)
    assert capsys.readouterr().out.count(SHOWN) == 5
    report(NotFound(f"There is no {HOSTILE}", hint=HOSTILE), as_json=False)
    told = capsys.readouterr().err
    assert told.count(SHOWN.replace("\\n", "\n")) == 2
    report(NotFound(HOSTILE), as_json=False, debug=True)
    assert capsys.readouterr().err.count(SHOWN.replace("\\n", "\n")) == 2
    report(NotFound(HOSTILE), as_json=True)
    assert json.loads(capsys.readouterr().err)["message"] == HOSTILE
    write(reader(table), as_json=True, as_csv=False)
    assert json.loads(capsys.readouterr().out)["name"] == HOSTILE
    for kind, expected in ((io.StringIO, HOSTILE), (_Terminal, SHOWN)):
        monkeypatch.setattr(sys, "stdout", kind())
        write(reader(table), as_json=False, as_csv=True)
        found = list(csv.reader(io.StringIO(sys.stdout.getvalue(), newline="")))
        assert found == [["name"], [expected]]


def test_notes_and_warnings_are_not_obeyed_either() -> None:
    err = _Terminal()
    with reporter(as_json=False, out=io.StringIO(), err=err) as report:
        report.start(None, None, HOSTILE)
        report.note(HOSTILE)
        report.warning(HOSTILE)
    assert "\x1b]0;" not in err.getvalue()
    assert "\u202e" not in err.getvalue()
    assert r"\x1b]0;title" in err.getvalue()


def test_a_table_in_a_pipe_is_whole_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"n": range(1000), "path": [f"{'x' * 300}{n}" for n in range(1000)]})
    write(reader(table, 64), as_json=False, as_csv=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1001
    assert lines[0].split() == ["n", "path"]
    assert [line.split() for line in lines[1:]] == [[str(n), f"{'x' * 300}{n}"] for n in range(1000)]
    assert {line.index("x" * 300) for line in lines[1:]} == {lines[0].index("path")}


def test_chosen_columns_have_units_and_all_columns_are_raw(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(), as_json=False, as_csv=False, columns=("bytes", "path"))
    chosen = capsys.readouterr().out
    assert chosen.splitlines()[0].split() == ["bytes", "path"]
    assert "1.5 kB" in chosen
    assert "[bold]" in chosen
    write(reader(), as_json=False, as_csv=False)
    assert "1500" in capsys.readouterr().out


def test_no_rows_still_have_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(TABLE.slice(0, 0)), as_json=False, as_csv=False)
    assert capsys.readouterr().out.split() == TABLE.schema.names


def test_one_form_at_a_time() -> None:
    with pytest.raises(UsageProblem, match="exclude"):
        write(reader(), as_json=True, as_csv=True)


@pytest.mark.parametrize(
    "form", ["as_json=True, as_csv=False", "as_json=False, as_csv=True", "as_json=False, as_csv=False"]
)
def test_rows_stream_and_a_reader_may_leave(form: str) -> None:
    """An endless result: only a program that neither holds the rows nor minds `| head` ends at all."""
    program = f"""
import itertools, pyarrow as pa
from lakebackup_jobs.cli.output.rows import write
batch = pa.record_batch({{"n": list(range(1000))}})
write(pa.RecordBatchReader.from_batches(batch.schema, itertools.repeat(batch)), {form})
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 0
