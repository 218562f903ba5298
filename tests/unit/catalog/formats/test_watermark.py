"""The watermark message: what it says is what is read back, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Damaged, UsageProblem
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.formats.queues.watermark import Watermark, headers_of, read_watermark

MADE = Watermark("social", "f", "b", "r", 1234, 1300)


def test_its_form_is_the_documented_one() -> None:
    assert json.loads(MADE.value) == {
        "format": 1, "graph": "social", "full": "f", "backup": "b", "restore": "r", "last_tid": 1234,
        "to_tid": 1300,
    }  # fmt: skip
    assert headers_of(HeaderNames(kind="what")) == [("lakebackup-watermark", b"1"), ("what", b"watermark")]


@given(st.builds(Watermark, st.text(), st.text(), st.text(), st.text(), st.integers(), st.integers()))
def test_what_was_said_is_read(made: Watermark) -> None:
    assert read_watermark(headers_of(HeaderNames()), made.value) == made


def test_another_message_is_none() -> None:
    assert read_watermark([("tid", b"7"), ("kind", b"write")], MADE.value) is None


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((value, Damaged) for value in (None, b"", b"[]", b"{}", b'"format"')),
        (MADE.value.replace(b"1234", b'"1234"'), Damaged),
        (MADE.value.replace(b'"graph"', b'"grape"'), Damaged),
        (MADE.value.replace(b'"format":1', b'"format":2'), UsageProblem),
    ],
)
def test_one_that_cannot_be_read_is_told(value: bytes | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_watermark(headers_of(HeaderNames()), value)
