"""Conflicts between a schema registry's backed-up records and those in the target's topic. Pure.

Records' values refer to schemas by id, so an id must have one schema only. Each context (`:.eu:orders`) has
its own ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebackup.rules.schema_ids import compact, split_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
        """What two records of one schema have in common."""
        return self.schema_type, compact(self.schema_text or ""), compact(self.schema_references or "[]")


def conflicts(ours: Iterable[RegistryRecord], theirs: Iterable[RegistryRecord]) -> list[str]:
    """Texts on versions whose id or schema differs in the target, and on ids with another schema there."""
    own, other = _latest_schemas(ours), _latest_schemas(theirs)
    found = []
    for key, here in own.items():
        there = other.get(key)
        if there is None:
            continue
        place = f"subject {here.subject}, version {here.version}"
        if here.schema_id != there.schema_id:
            found.append(f"{place}: id {here.schema_id} in the backup, {there.schema_id} at the target")
        elif here.schema != there.schema:
            found.append(f"{place}: another schema at the target")
    ids = _by_id(other)
    for name, here in _by_id(own).items():
        there = ids.get(name)
        if there is not None and here.schema != there.schema and here.key != there.key:
            found.append(
                f"id {here.schema_id}: {here.subject}, version {here.version} in the backup, "
                f"{there.subject}, version {there.version}, another schema, at the target"
            )
    return found


def left_alone(ours: Iterable[RegistryRecord], theirs: Iterable[RegistryRecord]) -> list[int]:
    """Positions of records not to restore: the target has their key, or schemas that they would delete, or
    they cannot be decoded."""
    keys, subjects = set(), set()
    for record in theirs:
        keys.add(record.key)
        if record.kind == "schema":
            subjects.add(record.key[1])
    return [
        record.position
        for record in ours
        if record.problem is not None
        or record.key in keys
        or (record.kind in _DELETIONS and record.key[1] in subjects)
    ]


def readable(records: Iterable[RegistryRecord]) -> list[RegistryRecord]:
    """The schemas that a registry with these records gives out by their ids."""
    latest = _latest_schemas(records).values()
    return [record for record in latest if record.schema_id is not None and record.schema_text is not None]


def _latest_schemas(records: Iterable[RegistryRecord]) -> dict[Key, RegistryRecord]:
    held: dict[Key, RegistryRecord] = {}
    for record in records:
        if record.kind != "schema" or record.problem is not None:
            continue
        if record.erased:
            held.pop(record.key, None)
        else:
            held[record.key] = record
    return held


def _by_id(held: Mapping[Key, RegistryRecord]) -> dict[tuple[str, int | None], RegistryRecord]:
    found: dict[tuple[str, int | None], RegistryRecord] = {}
    for record in held.values():
        context, _ = split_subject(record.subject or "")
        found.setdefault((context, record.schema_id), record)
    return found
