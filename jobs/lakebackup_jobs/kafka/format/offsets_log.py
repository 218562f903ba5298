"""Decodes records of `__consumer_offsets` into rows, from any bytes.

The layouts are those of Apache Kafka's group coordinator (its OffsetCommit…, GroupMetadata… and
ConsumerGroup… message definitions). The version in a key determines the kind of the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partialmethod
from typing import Any

OFFSETS_TOPIC = "__consumer_offsets"

OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
# The newest version of values of offsets and of classic groups. It is the first in which lengths are varints
# and optional (tagged) fields may follow.
NEWEST_VALUE = _FLEXIBLE = 4


def isolation_of(topic: str, isolation: str) -> str:
    """Return the isolation with which a topic is read.

    It is read_committed for the offsets topic: a group never had the offsets of an aborted transaction. For
    all other topics it is `isolation`.
    """
    return "read_committed" if topic == OFFSETS_TOPIC else isolation


class _Malformed(Exception):
    """The bytes do not have the layout that their version names."""


class _Cursor:
    """Reads the fields of a record's key or value. `compact`: lengths are stored as varints, plus one."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position, self.compact = data, 0, False

    def _number(self, size: int) -> int:
        return int.from_bytes(self._read(size), signed=True)

    int8 = partialmethod(_number, 1)
    int16 = partialmethod(_number, 2)
    int32 = partialmethod(_number, 4)
    int64 = partialmethod(_number, 8)

    def uuid(self) -> str:
        return self._read(16).hex()

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._read(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _Malformed("a number is too long")

    def text(self) -> str | None:
        size = self.varint() - 1 if self.compact else self.int16()
        if size == -1:
            return None
        try:
            return self._read(size).decode()
        except UnicodeDecodeError:
            raise _Malformed("a text is not UTF-8") from None

    def required_text(self) -> str:
        text = self.text()
        if text is None:
            raise _Malformed("a name is missing")
        return text

    def skip_bytes(self) -> int:
        """Skip a field of bytes; returns its size."""
        size = self.varint() - 1 if self.compact else self.int32()
        if size > 0:
            self._read(size)
        return max(size, 0)

    def array(self, parse: Callable[[], Any]) -> list[Any]:
        count = self.varint() - 1 if self.compact else self.int32()
        # An item has at least one byte. A damaged count must not create a list of billions.
        if count > len(self._data) - self._position:
            raise _Malformed(f"{count} items do not fit")
        return [parse() for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        if not self.compact:
            return {}
        tags = {}
        for _ in range(self.varint()):
            tag = self.varint()
            tags[tag] = self._read(self.varint())
        return tags

    def end(self) -> None:
        remaining = len(self._data) - self._position
        if remaining:
            raise _Malformed(f"{remaining} bytes are left over")

    def _read(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise _Malformed(
                f"it ends at byte {len(self._data)}, {size} bytes are expected at {self._position}"
            )
        piece = self._data[self._position : end]
        self._position = end
        return piece


def decode(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Decode a record's bytes into columns of `group_commits`. Columns that are missing are null.

    `kind`: offset, group (classic), consumer_group, consumer_member, consumer_target,
    consumer_target_member, consumer_assignment (groups of the newer protocol), unknown. A record without a
    value erases what its key names. Never raises: `problem` says what cannot be decoded.
    """
    row: dict[str, Any] = {"kind": "unknown"}
    try:
        if key is None:
            raise _Malformed("there is none")
        _key(_Cursor(key), row)
    except _Malformed as error:
        return {"kind": "unknown", "key_version": row.get("key_version"), "problem": f"key: {error}"}
    if value is not None and row["kind"] != "unknown":
        try:
            _value(_Cursor(value), row)
        except _Malformed as error:
            row["problem"] = f"value: {error}"
    return row


def _key(data: _Cursor, row: dict[str, Any]) -> None:
    version = row["key_version"] = data.int16()
    if version in OFFSET_KEYS:
        row["group_id"] = data.required_text()
        row["scope"] = data.required_text()
        row["region"] = str(data.int32())
        row["kind"] = "offset"
    elif version == GROUP_KEY:
        row["group_id"] = data.required_text()
        row["kind"] = "group"
    elif version in _CONSUMER_RECORDS:
        kind, with_member, _ = _CONSUMER_RECORDS[version]
        row["group_id"] = data.required_text()
        if with_member:
            row["detail"] = json.dumps({"member": data.required_text()})
        row["kind"] = kind
    else:
        return  # an unknown kind: share groups, streams groups, future ones
    data.end()


def _value(data: _Cursor, row: dict[str, Any]) -> None:
    version = row["value_version"] = data.int16()
    label = {"offset": "an offset", "group": "a group"}.get(row["kind"])
    if not 0 <= version <= (NEWEST_VALUE if label else 0):
        raise _Malformed(f"version {version} of {label or row['kind']} is not known")
    if row["kind"] == "offset":
        row |= _offset(data, version)
        return
    if row["kind"] == "group":
        detail = _group(data, version)
    else:
        data.compact = True
        detail = json.loads(row.get("detail", "{}")) | _CONSUMER_RECORDS[row["key_version"]][2](data)
        data.tags()
        data.end()
    row["detail"] = json.dumps(detail)


def _offset(data: _Cursor, version: int) -> dict[str, Any]:
    data.compact = version >= _FLEXIBLE
    position = data.int64()
    leader_epoch = data.int32() if version >= 3 else -1
    metadata = data.text()
    commit_ts = data.int64()
    expire_ts = data.int64() if version == 1 else -1
    topic_id = data.tags().get(0)
    data.end()
    return {
        "position": position,
        "leader_epoch": leader_epoch if leader_epoch >= 0 else None,
        "metadata": metadata or None,
        "commit_ts": commit_ts,
        "expire_ts": expire_ts if expire_ts >= 0 else None,
        "epoch": topic_id.hex() if topic_id is not None and len(topic_id) == 16 and any(topic_id) else None,
    }


def _group(data: _Cursor, version: int) -> dict[str, Any]:
    data.compact = version >= _FLEXIBLE

    def parse_member() -> dict[str, Any]:
        member: dict[str, Any] = {
            "member": data.text(),
            "instance": data.text() if version >= 3 else None,
            "client": data.text(),
            "host": data.text(),
        }
        if version >= 1:
            member["rebalance_timeout_ms"] = data.int32()
        member["session_timeout_ms"] = data.int32()
        data.skip_bytes()
        data.skip_bytes()
        data.tags()
        return member

    detail = {
        "protocol_type": data.text(),
        "generation": data.int32(),
        "assignor": data.text(),
        "leader": data.text(),
        "state_ts": data.int64() if version >= 2 else None,
    }
    members = data.array(parse_member)
    data.tags()
    data.end()
    return {**detail, "members": len(members), "clients": sorted({m["client"] or "" for m in members})}


def _partitions(data: _Cursor) -> dict[str, list[int]]:
    """Read a list of partitions; returns topic id -> partitions."""

    def parse_topic() -> tuple[str, list[int]]:
        topic = data.uuid(), data.array(data.int32)
        data.tags()
        return topic

    return dict(data.array(parse_topic))


def _member(data: _Cursor) -> dict[str, Any]:
    return {
        "instance": data.text(),
        "rack": data.text(),
        "client": data.text(),
        "host": data.text(),
        "topics": data.array(data.text),
        "topics_regex": data.text(),
        "rebalance_timeout_ms": data.int32(),
        "assignor": data.text(),
    }


def _assignment(data: _Cursor) -> dict[str, Any]:
    return {
        "epoch": data.int32(),
        "previous_epoch": data.int32(),
        "state": data.int8(),
        "assigned": _partitions(data),
        "to_revoke": _partitions(data),
    }


# Key version -> kind, whether the key names a member, and the function that reads the value's fields.
_CONSUMER_RECORDS: dict[int, tuple[str, bool, Callable[[_Cursor], dict[str, Any]]]] = {
    3: ("consumer_group", False, lambda data: {"epoch": data.int32()}),
    5: ("consumer_member", True, _member),
    6: ("consumer_target", False, lambda data: {"epoch": data.int32()}),
    7: ("consumer_target_member", True, lambda data: {"assigned": _partitions(data)}),
    8: ("consumer_assignment", True, _assignment),
}
