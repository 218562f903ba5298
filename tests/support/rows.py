"""Makes rows and other records of which a test gives some fields; the other fields are filled in."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from lakebackup.lazy import load_names
from lakebackup.rows.backups import Backup, DataFile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

EPOCH = "0123456789abcdef" * 2

#: The default values of the columns that locate a row.
PLACE: dict[str, Any] = {"source": "prod", "scope": "orders", "epoch": EPOCH, "region": "0"}


def filled(kind: type[T], /, **values: Any) -> T:
    """A record with these values. A field without a default gets its value in `PLACE`, or None, 0, "", False
    or the first of its words."""
    load_names(kind)
    hints = get_type_hints(kind)
    required = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]
    return kind(**{name: PLACE.get(name, nothing(hints[name])) for name in required} | values)


def nothing(hint: Any) -> Any:
    """The empty value of a type."""
    if type(None) in get_args(hint):
        return None
    return get_args(hint)[0] if get_origin(hint) is Literal else hint()


def backup_id(number: int) -> str:
    """The id of backup `number`."""
    return f"20260101T{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}Z-{number:08x}"


def backup_row(number: int, parent: Backup | None = None, /, **values: Any) -> Backup:
    """Backup `number` of a source, which ends at 1000 * number: a full, or the one that continues
    `parent`."""
    name = values.get("backup_id") or backup_id(number)
    defaults: dict[str, Any] = {"backup_id": name, "base": name, "number": number, "place": number}
    if parent:
        defaults |= {"kind": "differential", "level": 1, "parent": parent.backup_id, "base": parent.base}
        defaults |= {"chain_position": parent.chain_position + 1, "parent_place": parent.place}
        defaults |= {"start_ts": parent.end_ts}
    return filled(Backup, **defaults | {"end_ts": 1000 * number} | values)


def file_row(number: int, /, **values: Any) -> DataFile:
    """A data file that backup `number` added."""
    defaults = {"backup_id": backup_id(number), "added_in": number, "format": "kafka-avro-2", "codec": "null"}
    return filled(DataFile, **defaults | values)
