"""Restores of a registry's records to a registry that already holds records."""

from __future__ import annotations

from typing import Any

import pytest

from lakebackup.plan.topics.schemas import (
    RegistryRecord,
    after_restore,
    conflicts,
    positions_to_skip,
    readable,
)


def record(
    subject: str | None, version: int | None, schema_id: int | None = None, **changes: Any
) -> RegistryRecord:
    return RegistryRecord(
        **{
            "kind": "schema", "subject": subject, "version": version, "schema_id": schema_id,
            "schema_type": "AVRO", "schema_text": f"text {schema_id}", "erased": False, "problem": None,
            "position": 0, **changes,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("backup_records", "target_records", "expected"),
    [
        pytest.param([record("a", 1, 7)], [record("a", 1, 7)], [], id="the same"),
        pytest.param([record("a", 1, 7)], [record("b", 1, 8)], [], id="others"),
        pytest.param([record("a", 1, 7)], [record("b", 4, 7)], [], id="one schema, two subjects"),
        pytest.param(
            [record("a", 1, 7)],
            [record("a", 1, 8)],
            ["subject a, version 1: id 7 in the backup, 8 at the target"],
            id="another id",
        ),
        pytest.param(
            [record("a", 1, 7)],
            [record("a", 1, 7, schema_text="other")],
            ["subject a, version 1: another schema at the target"],
            id="another schema",
        ),
        pytest.param(
            [record("a", 1, 7)],
            [record("b", 2, 7, schema_type="JSON")],
            ["id 7: a, version 1 in the backup, b, version 2, another schema, at the target"],
            id="an id of another schema",
        ),
        pytest.param([record("a", 1, 7)], [record(":.eu:b", 1, 7, schema_text="x")], [], id="a context"),
        pytest.param(
            [record(":.:a", 1, 7)],
            [record("b", 1, 7, schema_text="x")],
            ["id 7: :.:a, version 1 in the backup, b, version 1, another schema, at the target"],
            id="the default context by name",
        ),
        pytest.param(
            [record("a", 1, 7, schema_text='{"a": 1}', schema_references="[]")],
            [record("a", 1, 7, schema_text='{"a":1}')],
            [],
            id="the same, written otherwise",
        ),
        pytest.param(
            [record("a", 1, 7, schema_references='[{"name": "C", "subject": "c", "version": 1}]')],
            [record("a", 1, 7, schema_references='[{"name": "C", "subject": "c", "version": 2}]')],
            ["subject a, version 1: another schema at the target"],
            id="another reference",
        ),
        pytest.param(
            [record("a", 1, 7)],
            [record("a", 1, 8), record("a", 1, erased=True)],
            [],
            id="erased at the target",
        ),
        pytest.param(
            [record("a", 1, 8), record("a", 1, 7)], [record("a", 1, 7)], [], id="the last record counts"
        ),
        pytest.param(
            [record("a", 1, 7, problem="torn")], [record("a", 1, 8)], [], id="what nobody can decode"
        ),
    ],
)  # fmt: skip
def test_conflicts_with_the_target(
    backup_records: list[RegistryRecord], target_records: list[RegistryRecord], expected: list[str]
) -> None:
    assert conflicts(backup_records, target_records) == expected


def test_records_that_the_target_has_are_left_alone() -> None:
    backup_records = [
        record("a", 1, 7, position=1),
        record("a", 2, 8, position=2),
        record(None, None, kind="config", position=3),
        record("a", 2, kind="delete_subject", position=4),
        record("b", 1, 9, position=5),
        record("b", 1, kind="delete_subject", position=6),
        record("c", 1, problem="torn", position=7),
        record(":.eu:", None, kind="context", position=8),
        record(":.us:", None, kind="context", position=9),
    ]
    target_records = [
        record(":.:a", 1, 7),
        record("a", 3, 9),
        record(None, None, kind="config"),
        record(":.us:", None, kind="context"),
    ]
    assert positions_to_skip(backup_records, target_records) == [1, 3, 4, 7, 9]
    assert positions_to_skip(backup_records, []) == [7]


def test_a_deletion_that_is_not_restored_removes_no_schema_of_the_target() -> None:
    deletion = record("a", 1, erased=True, position=1)
    backup_records, own = [record("a", 1, 7), deletion, record("b", 1, 8, position=2)], record("a", 1, 7)
    assert readable(after_restore(backup_records, [own])) == [own, backup_records[2]]
    assert readable(after_restore(backup_records, [])) == [backup_records[2]]
