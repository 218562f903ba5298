"""delta_schema_history.yaml: its versions, its cut for a restore, and whether it continues another."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import UsageProblem
from lakebackup.formats.queues.schema_history import Version, cut, parse, unlike

TEXT = b"""\
# kept as it is
engine: 4
schemas:
- {version: 1, tid: 0, schema: {person: [name]}}
- version: 2
  tid: 150
  change: add person.age
  schema: {person: [name, age]}
- {version: 4, tid: 151}
"""


def test_versions_are_read_in_order() -> None:
    assert parse(TEXT) == (
        Version(1, 0, None, '{"person": ["name"]}'),
        Version(2, 150, '"add person.age"', '{"person": ["name", "age"]}'),
        Version(4, 151, None, None),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("schemas: 3", "no list `schemas`"),
        ("- 1", "no list `schemas`"),
        ("schemas: [1]", "entry 1 of schemas: version and tid are needed"),
        ("schemas: [{version: 1}]", "version and tid are needed"),
        ("schemas: [{version: 1, tid: 0, form: x}]", "change and schema may be there"),
        ("schemas: [{version: true, tid: 0}]", "must be numbers"),
        ("schemas: [{version: 1, tid: -1}]", "must be numbers"),
        ("schemas: [{version: 1, tid: 5}, {version: 1, tid: 6}]", "both must rise"),
        ("schemas: [{version: 1, tid: 5}, {version: 2, tid: 5}]", "both must rise"),
        ("schemas: [!!python/object/apply:os.getpid []]", "is not YAML"),
        ("schemas: [{version: 1, tid: 0, change: 2024-02-30}]", "day is out of range"),
        (
            "schemas: [{version: 1, tid: 0}, &a {version: 2, tid: 1, schema: [*a]}]",
            "entry 2 of schemas: schema",
        ),
        (
            f"schemas: [{{version: 1, tid: 0, change: {'[' * 3000 + ']' * 3000}}}]",
            "change is nested too deeply",
        ),
    ],
)
def test_an_invalid_history_is_refused(text: str | bytes, complaint: str) -> None:
    with pytest.raises(UsageProblem) as error:
        parse(text, "history.yaml")
    assert complaint in error.value.message
    assert "history.yaml" in error.value.message


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("{on: person, add: age}", '{"add": "age", "true": "person"}'),
        ("{x: b, 1: a, null: c}", '{"1": "a", "null": "c", "x": "b"}'),
        ("[{2024-02-29: 2024-02-29}]", '[{"2024-02-29": "2024-02-29"}]'),
        ("[.nan, -.inf, 1.5]", '["nan", "-inf", 1.5]'),
        ("!!set {b, a}", '["a", "b"]'),
        ("!!omap [b: {no: 1}]", '[["b", {"false": 1}]]'),
    ],
)
def test_yaml_values_that_json_lacks_become_text(change: str, text: str) -> None:
    (version,) = parse(f"schemas: [{{version: 1, tid: 0, change: {change}}}]")
    assert version.change == text


def test_a_cut_removes_later_versions_and_nothing_else() -> None:
    assert cut(TEXT, 151) is TEXT
    assert cut(TEXT, 10_000) is TEXT
    assert parse(cut(TEXT, 150)) == parse(TEXT)[:2]
    assert parse(cut(TEXT, 149)) == parse(TEXT)[:1]
    content = yaml.safe_load(cut(TEXT, 0))
    assert content == {"engine": 4, "schemas": [{"version": 1, "tid": 0, "schema": {"person": ["name"]}}]}
    assert parse(cut(cut(TEXT, 150), 0)) == parse(cut(TEXT, 0))


@pytest.mark.parametrize("text", ["\u00e4", "\x85", "a\u2028b", "\n", "\U0001f600"])
def test_a_cut_keeps_text_of_any_kind(text: str) -> None:
    entries = [{"version": version, "tid": version, "schema": {text: text}} for version in (1, 2)]
    (first_version,) = parse(cut(yaml.safe_dump({"schemas": entries}).encode(), 1))
    assert json.loads(first_version.schema or "") == {text: text}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
HISTORIES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 50), VALUES, VALUES), max_size=6)


@given(HISTORIES, st.integers(0, 300))
def test_any_history_is_read_and_cut_by_tid(steps: list[tuple[int, int, object, object]], tid: int) -> None:
    version = last_tid = 0
    entries = []
    for version_step, tid_step, change, schema in steps:
        version, last_tid = version + version_step, last_tid + tid_step
        entries.append({"version": version, "tid": last_tid, "change": change, "schema": schema})
    text = yaml.safe_dump({"schemas": entries}).encode()
    versions = parse(text)
    assert [(v.version, v.tid) for v in versions] == [(e["version"], e["tid"]) for e in entries]
    for v, e in zip(versions, entries, strict=True):
        assert (v.schema is None) == (e["schema"] is None)
        if v.schema is not None:
            assert json.loads(v.schema) == e["schema"]
    assert parse(cut(text, tid)) == tuple(v for v in versions if v.tid <= tid)


def test_a_history_continues_another_when_it_has_all_its_versions() -> None:
    versions = parse(TEXT)
    assert unlike(versions, [(1, 0), (2, 150)]) is None
    assert unlike(versions, []) is None
    assert unlike(versions, [(1, 0), (2, 149)]) == (2, 149)
    assert unlike(versions[:1], [(1, 0), (2, 150)]) == (2, 150)
