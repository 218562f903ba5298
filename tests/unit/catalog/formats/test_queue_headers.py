"""An engine's headers and the watermark message: what is written is what is read back."""

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

MADE = Watermark("social", "f", "b", "r", 1234, 1300)


def test_its_form_is_the_documented_one() -> None:
    assert json.loads(MADE.value) == {
        "format": 1, "graph": "social", "full": "f", "backup": "b", "restore": "r", "last_tid": 1234,
        "to_tid": 1300,
    }  # fmt: skip
    assert headers_of(HeaderNames(kind="what")) == [("lakebackup-watermark", b"1"), ("what", b"watermark")]


@given(st.builds(Watermark, st.text(), st.text(), st.text(), st.text(), st.integers(), st.integers()))
def test_what_was_said_is_read(made: Watermark) -> None:
    assert read_watermark(made.value) == made


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((value, Damaged) for value in (None, b"", b"[]", b"{}", b'"format"')),
        (MADE.value.replace(b"1234", b'"1234"'), Damaged),
        (MADE.value.replace(b'"graph"', b'"grape"'), Damaged),
        (MADE.value.replace(b'"format":1', b'"format":2'), UsageProblem),
    ],
)
def test_one_that_cannot_be_read_is_reported(value: bytes | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_watermark(value)


# --- headers


def test_names_are_read_as_they_were_written() -> None:
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


def test_a_backup_with_one_name_for_two_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["backup", "queue", "social", "--pattern", "delta.*", "--repo", str(tmp_path / "backups")]
    headers = ["--tid-header", "x", "--kind-header", "x"]
    assert main([*asked, *headers, "--bootstrap-server", "localhost:1"]) == 2
    assert "a name of its own" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "backups").exists()
