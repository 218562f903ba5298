from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from decimal import Decimal
from itertools import starmap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup_jobs.cli.flags.values import one_of
from lakebackup_jobs.cli.look import list_
from lakebackup_jobs.cli.output import rows as rows_module
from lakebackup_jobs.cli.output.errors import report
from lakebackup_jobs.cli.output.rows import Brief, write
from lakebackup_jobs.cli.output.short_ids import ShortIds
from lakebackup_jobs.lifecycle.progress import display, print_result, reporter
from lakebackup_jobs.runtime.terminal_table import table
from lakebackup_jobs.runtime.terminal_text import visible

OUTPUT = Path(__file__).parents[4] / "docs" / "output.md"
MOMENT = datetime(2026, 11, 21, 14, 5, tzinfo=UTC)
TABLE = pa.table(
    {
        "path": ["a+0-1.data", 'quo"ted, [bold]', None],
        "bytes": pa.array([1500, 0, None], pa.int64()),
        "at_utc": pa.array([MOMENT, None, None], pa.timestamp("us", "UTC")),
        "key": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "ok": pa.array([True, False, None]),
        "maps": pa.array([{"x": 1}, None, None], pa.struct([("x", pa.int32())])),
    }
)


def reader(table: pa.Table = TABLE, size: int = 2) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(), mode="json")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {
        "path": "a+0-1.data", "bytes": 1500, "at_utc": "2026-11-21T14:05:00Z", "key": "00ff", "ok": True,
        "maps": {"x": 1},
    }  # fmt: skip
    assert rows[2] == dict.fromkeys(TABLE.schema.names) | {"key": ""}


def test_markdown_for_a_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table(
        {"a|b": ["x|y\nz", "", None], "n": pa.array([1, None, 3], pa.int64()), "at": [MOMENT] * 3}
    )
    write(reader(rows), mode="agent")
    assert capsys.readouterr().out.splitlines() == [
        r"|a\|b: STRING|n: BIGINT|at: TIMESTAMP|",
        "|---|---|---|",
        r"|x\|y\nz|1|2026-11-21T14:05:00Z|",
        '|""||2026-11-21T14:05:00Z|',
        "||3|2026-11-21T14:05:00Z|",
        "(3 rows)",
    ]
    write(reader(), mode="agent", columns=["key", "maps", "ok"])
    assert capsys.readouterr().out.splitlines()[0] == "|key: BINARY|maps: STRUCT<x: INT>|ok: BOOLEAN|"


@pytest.mark.parametrize("size", [1, 3])
def test_markdown_has_a_line_for_each_row_whatever_its_texts_are(
    capsys: pytest.CaptureFixture[str], size: int
) -> None:
    write(reader(pa.table({"text": TEXTS, "key": [b"k"] * len(TEXTS)}), size), mode="agent")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(TEXTS) + 3
    assert all(line.endswith("|6b|") for line in lines[2:-1])


TEXTS = [
    None, "", "a", 'q"uo,te', "back\\slash", "a\nb", "a\rb", "=1", "-5", "+x", "@", "\t", " end ",
    "\x00\x1b\x7f", "é漢😀", "\u202e\u2028\xa0\u3000", "\ufeff",
]  # fmt: skip
MOMENTS = [None, 0, -1, 1_500_000, 1_790_000_000_000_000]
NUMBERS = [
    None,
    0.0,
    -0.0,
    1.5,
    1e15,
    1e16,
    1e-4,
    1e-5,
    123456789012.25,
    math.nan,
    math.inf,
    -math.inf,
    1 / 3,
]
HOSTILE_COLUMNS = {
    "text": pa.array(TEXTS),
    "long_text": pa.array(TEXTS, pa.large_string()),
    "coded": pa.array(TEXTS).dictionary_encode(),
    "nothing": pa.nulls(2),
    "bytes": pa.array([None, 0, 2**63 - 1, -(2**63)], pa.int64()),
    "small": pa.array([None, -128], pa.int8()),
    "large": pa.array([2**64 - 1], pa.uint64()),
    "truth": pa.array([True, False, None]),
    "d_s": pa.array(NUMBERS, pa.float64()),
    "half": pa.array(NUMBERS, pa.float32()),
    "at_utc": pa.array(MOMENTS, pa.timestamp("us", "Etc/UTC")),
    "first_and_last": pa.array([-62_135_596_800_000_000, 253_402_300_799_999_999], pa.timestamp("us")),
    "at_london": pa.array(MOMENTS, pa.timestamp("us", "Europe/London")),
    "at_ms": pa.array(MOMENTS[:-1], pa.timestamp("ms")),
    "sum": pa.array([None, Decimal(10) ** 37, Decimal(0)], pa.decimal128(38, 0)),
    "money": pa.array([None, Decimal("1.50"), Decimal("-2.00")], pa.decimal128(18, 2)),
    "day": pa.array([None, 20_000], pa.date32()),
    "span": pa.array([None, 1_500_000], pa.duration("us")),
    "key": pa.array([None, b"", b"\x00\xff"]),
    "texts": pa.array([None, [], TEXTS]),
    "row": pa.array([None, {"at": MOMENT, "key": b"\xff", "is": 'a"b'}]),
    "pairs": pa.array([None, [("a,", 1)]], pa.map_(pa.string(), pa.int32())),
}
#: Each column by itself, and all of them beside each other.
HOSTILE_TABLES = [
    *(pa.table({name: values}) for name, values in HOSTILE_COLUMNS.items()),
    pa.table({
        name: pa.concat_arrays([values] * (len(TEXTS) // len(values) + 1)).slice(0, len(TEXTS))
        for name, values in HOSTILE_COLUMNS.items()
    }),
]  # fmt: skip


def test_nan_and_infinity_are_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"a": [math.nan, 1.5], "b": [[{"c": -math.inf}], []]})
    write(reader(rows, 3), mode="json")
    assert capsys.readouterr().out == '{"a": null, "b": [{"c": null}]}\n{"a": 1.5, "b": []}\n'


@pytest.mark.parametrize("hostile", HOSTILE_TABLES, ids=lambda table: "+".join(table.schema.names)[:20])
@pytest.mark.parametrize("size", [3, 1000])
def test_columns_are_written_as_python_would(
    hostile: pa.Table, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    names, rows = hostile.schema.names, hostile.to_pylist()
    write(reader(hostile, size), mode="json")
    assert capsys.readouterr().out == "".join(map(rows_module.json_line, rows))

    write(reader(hostile, size), mode="csv")
    expected_csv = io.StringIO()
    for values in ([*names], *([*row.values()] for row in rows)):
        cells = [_csv_cell(value) for value in values]
        quoting = csv.QUOTE_ALL if any("\r" in cell for cell in cells) else csv.QUOTE_MINIMAL
        csv.writer(expected_csv, lineterminator="\n", quoting=quoting).writerow(cells)
    assert capsys.readouterr().out == expected_csv.getvalue()

    numbers = rows_module._numbers(hostile, names)
    write(reader(hostile, size))
    lines = table(names, [[*map(visible, map(_cell, row.values()))] for row in rows], numbers=numbers)
    assert capsys.readouterr().out == "".join(lines)
    write(reader(hostile, size), columns=names)
    lines = table(names, [[*starmap(display, row.items())] for row in rows], numbers=numbers)
    assert capsys.readouterr().out == "".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return str(value)
    return "" if value is None else rows_module.json_line({"": value})[5:-2].strip('"')


def _csv_cell(value: Any) -> str:
    text = _cell(value)
    formula = isinstance(value, str) and text[:1] in {*"=+-@\t\r"} and text != "-5"
    return f"'{text}" if text and formula else text


def test_csv(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(), mode="csv")
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
    write(reader(table), mode="csv")
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    expected = [*(f"'{text}" for text in formulas), *(text or "" for text in harmless)]
    assert [row[0] for row in rows[1:]] == expected
    assert {row[1] for row in rows[1:]} == {"-1.5"}


HOSTILE = "\x1b]0;title\x07a\x9b31m\u202eb\nc"
ESCAPED = r"\x1b]0;title\x07a\x9b31m\u202eb\nc"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_escaped_except_in_json_and_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"name": [HOSTILE]})
    for columns in (None, ("name",)):
        write(reader(table), columns=columns)
        assert ESCAPED in capsys.readouterr().out
    print_result({HOSTILE: HOSTILE, "rows": [{HOSTILE: {HOSTILE: [HOSTILE]}}]}, sys.stdout)
    assert capsys.readouterr().out.count(ESCAPED) == 5
    report(NotFound(f"There is no {HOSTILE}", hint=HOSTILE), as_json=False)
    err = capsys.readouterr().err
    assert err.count(ESCAPED.replace("\\n", "\n")) == 2
    report(NotFound(HOSTILE), as_json=False, debug=True)
    assert capsys.readouterr().err.count(ESCAPED.replace("\\n", "\n")) == 2
    report(NotFound(HOSTILE), as_json=True)
    assert json.loads(capsys.readouterr().err)["message"] == HOSTILE
    write(reader(table), mode="json")
    assert json.loads(capsys.readouterr().out)["name"] == HOSTILE
    for kind, expected in ((io.StringIO, HOSTILE), (_Terminal, ESCAPED)):
        monkeypatch.setattr(sys, "stdout", kind())
        write(reader(table), mode="csv")
        rows = list(csv.reader(io.StringIO(sys.stdout.getvalue(), newline="")))
        assert rows == [["name"], [expected]]


def test_control_characters_are_escaped_in_notes_and_warnings() -> None:
    err = _Terminal()
    with reporter(as_json=False, stream=io.StringIO(), err=err) as report:
        report.start(None, None, HOSTILE)
        report.note(HOSTILE)
        report.warning(HOSTILE)
    assert "\x1b]0;" not in err.getvalue()
    assert "\u202e" not in err.getvalue()
    assert r"\x1b]0;title" in err.getvalue()


def test_a_table_in_a_pipe_is_complete_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"n": range(1000), "path": [f"{'x' * 300}{n}" for n in range(1000)]})
    write(reader(table, 64))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1001
    assert lines[0].split() == ["n", "path"]
    assert [line.split() for line in lines[1:]] == [[str(n), f"{'x' * 300}{n}"] for n in range(1000)]
    assert {line.index("x" * 300) for line in lines[1:]} == {lines[0].index("path")}


def test_chosen_columns_have_units_and_all_columns_are_raw(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(), columns=("bytes", "path"))
    output = capsys.readouterr().out
    assert output.splitlines()[0].split() == ["bytes", "path"]
    assert "1.5 kB" in output
    assert "[bold]" in output
    write(reader())
    assert "1500" in capsys.readouterr().out


Show = Callable[..., str]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Show:
    """A function that returns what `write` prints on a terminal without colours."""

    def write_on_terminal(table: pa.Table, width: int = 80, **options: Any) -> str:
        for name, value in {"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "xterm"}.items():
            monkeypatch.setenv(name, value)
        with redirect_stdout(_Terminal()) as terminal:
            write(reader(table), **options)
        return terminal.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")

    return write_on_terminal


LONG = pa.table({f"column_{n}": ["x" * 30, "y"] for n in range(3)})
MANY = pa.table({f"column_{n}": [n] for n in range(20)})


def test_the_rows_of_a_select_fit_or_have_a_line_a_column(show: Show) -> None:
    _, first, _ = show(LONG).splitlines()
    assert len(first) == 80
    assert first.count("…") == 3
    assert show(MANY).splitlines() == ["-[ row 1 ]-", *(f"{f'column_{n}':9} | {n}" for n in range(20))]
    assert [len(line.split()) for line in show(MANY, mode="wide").splitlines()] == [20, 20]


def test_a_long_text_on_a_line_of_its_own_wraps(show: Show) -> None:
    table = pa.table({"note": ["word " * 30], "n": [1]})
    _, *texts, last = show(table, width=40, mode="vertical").splitlines()
    assert all(len(line) <= 40 for line in texts)
    assert [line[:6] for line in texts] == ["note |", *["     |"] * (len(texts) - 1)]
    assert " ".join(line[7:] for line in texts).split() == ["word"] * 30
    assert last == "n    | 1"
    assert len(show(table, mode="vertical", width=1000).splitlines()) == 3


def test_a_brief_table_has_ages_and_short_ids(show: Show) -> None:
    end_ts = time.time_ns() // 1_000_000 - 3 * 3_600_000
    row = {"backup_id": "20261121T140512Z-8174d834", "end_ts": end_ts, "end_time": MOMENT, "bytes": 1500}
    table, columns = pa.Table.from_pylist([row]), ("backup_id", "end_ts", "bytes")
    short = show(table, columns=columns, brief=Brief(columns, short=lambda text: text[:13]))
    assert re.split("  +", short.splitlines()[1]) == ["20261121T1405", "3 h ago", "1.5 kB"]
    wide = show(table, columns=columns, brief=Brief(columns), mode="wide").splitlines()[1]
    assert wide.split()[::2] == [row["backup_id"], "2026-11-21T14:05:00.000Z", "kB"]


def test_control_characters_are_escaped_on_a_terminal(show: Show) -> None:
    hostile = pa.table({HOSTILE: [HOSTILE], "state": [f"{HOSTILE}failed"]})
    options: dict[str, Any]
    for options in ({}, {"mode": "wide"}, {"mode": "vertical"}, {"brief": Brief(("state",))}):
        assert not {"\x1b", "\u202e", "\x9b"} & set(show(hostile, **options))


def test_a_pager_gets_what_the_terminal_would(
    show: Show, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page"
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {page}'")
    assert show(LONG, pages=True) == ""
    text = page.read_text().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert text == show(LONG)
    monkeypatch.setenv("PAGER", "")
    assert show(LONG, pages=True) == text


def _listed(*values: Any) -> dict[str, Any]:
    """A row of `list`. The value given for `end_ts` is how many minutes ago the backup ended."""
    row = dict(zip(list_.COLUMNS, values, strict=True))
    return row | {"end_ts": time.time_ns() // 1_000_000 - 60_000 * row["end_ts"] - 1000}


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_in_the_docs_are_true(show: Show, width: int) -> None:
    ids = ["140512Z-8174d834", "130503Z-51c0ffee", "120507Z-0a1b2c3d", "120501Z-4e5f6071", "020000Z-9b8c7d6e"]
    kinds = ["differential"] * 3 + ["full"] * 2
    values_by_row = [
        ("complete", True, 2, 0, 0, 0, "prod", None),
        ("complete", True, 62, 4, 120_000, 9_800_000, "prod", None),
        ("out_of_sync", True, 122, 4, 7000, 1_200_000, "prod", None),
        ("complete", False, 123, 812, 9, 40_000_000, "social", None),
        ("complete", True, 9365, 96, 81_000_000, 3_400_000_000, "prod", "before the upgrade"),
    ]
    rows = [
        _listed(f"20261121T{id_suffix}", kind, *values)
        for id_suffix, kind, values in zip(ids, kinds, values_by_row, strict=True)
    ]
    short = ShortIds(row["backup_id"] for row in rows)
    text = show(pa.Table.from_pylist(rows), width, brief=Brief(list_.COLUMNS, list_.FIRST_OUT, short))
    assert "".join(f"    {line}" for line in text.splitlines(keepends=True)) in OUTPUT.read_text()


def test_no_rows_still_have_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    write(reader(TABLE.slice(0, 0)))
    assert capsys.readouterr().out.split() == TABLE.schema.names


def test_one_form_at_a_time() -> None:
    with pytest.raises(UsageProblem, match="exclude"):
        one_of({"json": True, "csv": True}, "table")


@pytest.mark.parametrize("mode", ["json", "csv", "table"])
def test_rows_stream_and_a_reader_may_leave(mode: str) -> None:
    """The result is endless: a program ends only if it does not hold the rows and accepts a closed pipe."""
    program = f"""
import itertools, pyarrow as pa
from lakebackup_jobs.cli.look import list_
from lakebackup_jobs.cli.output.rows import Brief, write
from lakebackup_jobs.cli.output.short_ids import ShortIds
batch = pa.record_batch({{"n": list(range(1000))}})
write(pa.RecordBatchReader.from_batches(batch.schema, itertools.repeat(batch)), mode={mode!r})
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 0
