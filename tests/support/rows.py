"""Rows and other records of which a test gives what matters to it; the rest is filled in."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from lakebackup.rows.backups import Backup, DataFile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

EPOCH = "0123456789abcdef" * 2

#: Where rows are unless a test says otherwise.
PLACE: dict[str, Any] = {"source": "prod", "scope": "orders", "epoch": EPOCH, "region": "0"}


def filled(kind: type[T], /, **given: Any) -> T:
    """A record with these values; fields without a default are the usual place, None, 0, "", False, or the
    first of their words."""
    hints = get_type_hints(kind)
    wanted = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]
    return kind(**{name: PLACE.get(name, nothing(hints[name])) for name in wanted} | given)


def nothing(hint: Any) -> Any:
    """The emptiest value of a type."""
    if type(None) in get_args(hint):
        return None
    return get_args(hint)[0] if get_origin(hint) is Literal else hint()


def backup_id(number: int) -> str:
    """The id of the backup with a number."""
    return f"20260101T{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}Z-{number:08x}"


def backup_row(number: int, parent: Backup | None = None, /, **given: Any) -> Backup:
    """Backup `number` of a source, ending at 1000 * number: a full, or what continues `parent`."""
    name = given.get("backup_id") or backup_id(number)
    own: dict[str, Any] = {"backup_id": name, "base": name, "number": number, "place": number}
    if parent:
        own |= {"kind": "differential", "level": 1, "parent": parent.backup_id, "base": parent.base}
        own |= {"chain_position": parent.chain_position + 1, "parent_place": parent.place}
        own |= {"start_ts": parent.end_ts}
    return filled(Backup, **own | {"end_ts": 1000 * number} | given)


def file_row(number: int, /, **given: Any) -> DataFile:
    """A data file that backup `number` added."""
    own = {"backup_id": backup_id(number), "added_in": number, "format": "kafka-avro-2", "codec": "null"}
    return filled(DataFile, **own | given)
