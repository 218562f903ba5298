"""The headers of an engine and the watermark message are read as they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Damaged, UsageProblem
from lakebackup.formats.queues.headers import NAMES, WATERMARK, HeaderNames
from lakebackup.formats.queues.watermark import Watermark, headers_of, read_watermark
from lakebackup_jobs.cli import main

EXAMPLE = Watermark("social", "f", "b", "r", 1234, 1300)


def test_a_watermark_has_the_documented_form() -> None:
    assert json.loads(EXAMPLE.value) == {
        "format": 1, "graph": "social", "full": "f", "backup": "b", "restore": "r", "last_tid": 1234,
        "to_tid": 1300,
    }  # fmt: skip
    assert headers_of(HeaderNames(kind="what")) == [("lakebackup-watermark", b"1"), ("what", b"watermark")]


@given(st.builds(Watermark, st.text(), st.text(), st.text(), st.text(), st.integers(), st.integers()))
def test_a_watermark_is_read_as_it_was_written(watermark: Watermark) -> None:
    assert read_watermark(watermark.value) == watermark


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((value, Damaged) for value in (None, b"", b"[]", b"{}", b'"format"')),
        (EXAMPLE.value.replace(b"1234", b'"1234"'), Damaged),
        (EXAMPLE.value.replace(b'"graph"', b'"grape"'), Damaged),
        (EXAMPLE.value.replace(b'"format":1', b'"format":2'), UsageProblem),
    ],
)
def test_an_unreadable_watermark_is_reported(value: bytes | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_watermark(value)


# --- headers


def test_header_names_are_read_as_they_were_written() -> None:
    names = HeaderNames(tid="n", kind="what", tid_format="int64")
    assert HeaderNames.read({NAMES: names.text.encode()}) == names
    assert HeaderNames.read({}) is None


@pytest.mark.parametrize(
    "names",
    [
        {"tid": "x", "kind": "x"},
        {"transaction": "tid"},
        {"kind": "transaction"},
        *({name: WATERMARK} for name in ("tid", "transaction", "kind")),
    ],
)
def test_each_header_has_a_name_of_its_own(names: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, match="a name of its own"):
        HeaderNames(**names)


def test_a_backup_with_one_name_for_two_headers_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["backup", "queue", "social", "--pattern", "delta.*", "--repo", str(tmp_path / "backups")]
    headers = ["--tid-header", "x", "--kind-header", "x"]
    assert main([*command, *headers, "--bootstrap-server", "localhost:1"]) == 2
    assert "a name of its own" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "backups").exists()
