from __future__ import annotations

import pytest

from lakebackup.rules.stored_json import object_of, texts_of

DEEP = "[" * 200_000


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '"a"', "null", DEEP, "NaN"])
def test_text_that_is_no_object_gives_an_empty_one(text: str | None) -> None:
    assert object_of(text) == {}


def test_an_object_is_read() -> None:
    assert object_of('{"digest": "a"}') == {"digest": "a"}
    assert object_of(b'{"digest": "a"}') == {"digest": "a"}


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1]", '["a", null]', '"a"', DEEP])
def test_text_that_is_no_array_of_texts_gives_none(text: str) -> None:
    assert texts_of(text) is None


def test_texts_are_read() -> None:
    assert texts_of('["a", "b"]') == ["a", "b"]
    assert texts_of(None) == []
