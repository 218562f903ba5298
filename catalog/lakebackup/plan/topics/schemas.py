"""Finds conflicts between a schema registry's backed-up records and those in the target's topic. Pure.

The values of records refer to schemas by id, so an id must have only one schema. Each context (`:.eu:orders`)
has its own ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebackup.rules.schema_ids import compact, split_subject

_DELETIONS = ("delete_subject", "clear_subject")

Key = tuple[str, tuple[str, str] | None, int | None]


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """A decoded record of a registry's topic. `erased`: it deletes its key; `position`: its offset."""

    kind: str
    subject: str | None
    version: int | None
    schema_id: int | None
    schema_type: str | None
    schema_text: str | None
    erased: bool
    problem: str | None
    position: int
    schema_references: str | None = None

    @property
    def key(self) -> Key:
        """Later records with the same key replace this one."""
        subject = None if self.subject is None else split_subject(self.subject)
        return self.kind, subject, self.version if self.kind == "schema" else None

    @property
    def schema(self) -> tuple[str | None, str, str]:
        """The schema in a form that is equal for equal schemas: its type, text and references."""
        return self.schema_type, compact(self.schema_text or ""), compact(self.schema_references or "[]")


def conflicts(
    backup_records: Iterable[RegistryRecord], target_records: Iterable[RegistryRecord]
) -> list[str]:
    """A text for each version whose id or schema differs in the target, and for each id with another schema
    there. `backup_records`: the backup's records; `target_records`: the target's."""
    backup_schemas, target_schemas = _latest_schemas(backup_records), _latest_schemas(target_records)
    texts = []
    for key, record in backup_schemas.items():
        target_record = target_schemas.get(key)
        if target_record is None:
            continue
        label = f"subject {record.subject}, version {record.version}"
        if record.schema_id != target_record.schema_id:
            texts.append(
                f"{label}: id {record.schema_id} in the backup, {target_record.schema_id} at the target"
            )
        elif record.schema != target_record.schema:
            texts.append(f"{label}: another schema at the target")
    target_by_id = _by_id(target_schemas)
    for schema_key, record in _by_id(backup_schemas).items():
        target_record = target_by_id.get(schema_key)
        if (
            target_record is not None
            and record.schema != target_record.schema
            and record.key != target_record.key
        ):
            texts.append(
                f"id {record.schema_id}: {record.subject}, version {record.version} in the backup, "
                f"{target_record.subject}, version {target_record.version}, another schema, at the target"
            )
    return texts


def positions_to_skip(
    backup_records: Iterable[RegistryRecord], target_records: Iterable[RegistryRecord]
) -> list[int]:
    """The positions of the records not to restore: those that cannot be decoded, those whose key the target
    has, and deletions of subjects whose schemas the target has."""
    keys, subjects = set(), set()
    for record in target_records:
        keys.add(record.key)
        if record.kind == "schema":
            subjects.add(record.key[1])
    return [
        record.position
        for record in backup_records
        if record.problem is not None
        or record.key in keys
        or (record.kind in _DELETIONS and record.key[1] in subjects)
    ]


def after_restore(
    backup_records: Sequence[RegistryRecord], target_records: Sequence[RegistryRecord]
) -> list[RegistryRecord]:
    """The records that the target's topic has after the restore: its own, then those that are not skipped."""
    skipped = set(positions_to_skip(backup_records, target_records))
    return [*target_records, *(record for record in backup_records if record.position not in skipped)]


def readable(records: Iterable[RegistryRecord]) -> list[RegistryRecord]:
    """The schemas that a registry with these records returns by their ids."""
    latest = _latest_schemas(records).values()
    return [record for record in latest if record.schema_id is not None and record.schema_text is not None]


def _latest_schemas(records: Iterable[RegistryRecord]) -> dict[Key, RegistryRecord]:
    schemas: dict[Key, RegistryRecord] = {}
    for record in records:
        if record.kind != "schema" or record.problem is not None:
            continue
        if record.erased:
            schemas.pop(record.key, None)
        else:
            schemas[record.key] = record
    return schemas


def _by_id(schemas: Mapping[Key, RegistryRecord]) -> dict[tuple[str, int | None], RegistryRecord]:
    records_by_id: dict[tuple[str, int | None], RegistryRecord] = {}
    for record in schemas.values():
        context, _ = split_subject(record.subject or "")
        records_by_id.setdefault((context, record.schema_id), record)
    return records_by_id
