"""Records of `__consumer_offsets` as rows: bytes in, fields out, whatever the bytes are.

The layouts are those of Apache Kafka's group coordinator (its OffsetCommit…, GroupMetadata… and
ConsumerGroup… message definitions). A key's version gives the kind of the record.
"""

from __future__ import annotations

import json
from functools import partialmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

OFFSETS_TOPIC = "__consumer_offsets"

OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
# Of offsets and of classic groups; in it, lengths are varints and fields may follow that not all have.
NEWEST_VALUE = _FLEXIBLE = 4


def isolation_of(topic: str, asked: str) -> str:
    """How a topic is read: offsets that an aborted transaction committed were never a group's."""
    return "read_committed" if topic == OFFSETS_TOPIC else asked


class _Torn(Exception):
    """The bytes are not of the layout they claim."""


class _Bytes:
    """A cursor over a record's key or value; `compact`: lengths are varints, one more than the length."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self.compact = data, 0, False

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), signed=True)

    int8 = partialmethod(_number, 1)
    int16 = partialmethod(_number, 2)
    int32 = partialmethod(_number, 4)
    int64 = partialmethod(_number, 8)

    def uuid(self) -> str:
        return self._take(16).hex()

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _Torn("a number is too long")

    def text(self) -> str | None:
        size = self.varint() - 1 if self.compact else self.int16()
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise _Torn("a text is not UTF-8") from None

    def named(self) -> str:
        found = self.text()
        if found is None:
            raise _Torn("a name is missing")
        return found

    def blob(self) -> int:
        """The size of bytes that are passed over."""
        size = self.varint() - 1 if self.compact else self.int32()
        if size > 0:
            self._take(size)
        return max(size, 0)

    def many(self, item: Callable[[], Any]) -> list[Any]:
        count = self.varint() - 1 if self.compact else self.int32()
        # An item has a byte at least: a torn count must not make a list of billions.
        if count > len(self._data) - self._at:
            raise _Torn(f"{count} items do not fit")
        return [item() for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        if not self.compact:
            return {}
        found = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self._take(self.varint())
        return found

    def end(self) -> None:
        left = len(self._data) - self._at
        if left:
            raise _Torn(f"{left} bytes are left over")

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise _Torn(f"it ends at byte {len(self._data)}, {size} bytes are expected at {self._at}")
        piece = self._data[self._at : end]
        self._at = end
        return piece


def decode(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """The columns of `group_commits` that a record's bytes give; those that are missing are null.

    `kind`: offset, group (classic), consumer_group, consumer_member, consumer_target,
    consumer_target_member, consumer_assignment (groups of the newer protocol), unknown. A record without a
    value erases what its key names. Never raises: what cannot be decoded is named in `problem`.
    """
    row: dict[str, Any] = {"kind": "unknown"}
    try:
        if key is None:
            raise _Torn("there is none")
        _key(_Bytes(key), row)
    except _Torn as torn:
        return {"kind": "unknown", "key_version": row.get("key_version"), "problem": f"key: {torn}"}
    if value is not None and row["kind"] != "unknown":
        try:
            _value(_Bytes(value), row)
        except _Torn as torn:
            row["problem"] = f"value: {torn}"
    return row


def _key(data: _Bytes, row: dict[str, Any]) -> None:
    version = row["key_version"] = data.int16()
    if version in OFFSET_KEYS:
        row["group_id"] = data.named()
        row["scope"] = data.named()
        row["region"] = str(data.int32())
        row["kind"] = "offset"
    elif version == GROUP_KEY:
        row["group_id"] = data.named()
        row["kind"] = "group"
    elif version in _NEWER:
        kind, with_member, _ = _NEWER[version]
        row["group_id"] = data.named()
        if with_member:
            row["detail"] = json.dumps({"member": data.named()})
        row["kind"] = kind
    else:
        return  # of a kind that is not known here: share groups, streams groups, what is to come
    data.end()


def _value(data: _Bytes, row: dict[str, Any]) -> None:
    version = row["value_version"] = data.int16()
    named = {"offset": "an offset", "group": "a group"}.get(row["kind"])
    if not 0 <= version <= (NEWEST_VALUE if named else 0):
        raise _Torn(f"version {version} of {named or row['kind']} is not known")
    if row["kind"] == "offset":
        row |= _offset(data, version)
        return
    if row["kind"] == "group":
        detail = _group(data, version)
    else:
        data.compact = True
        detail = json.loads(row.get("detail", "{}")) | _NEWER[row["key_version"]][2](data)
        data.tags()
        data.end()
    row["detail"] = json.dumps(detail)


def _offset(data: _Bytes, version: int) -> dict[str, Any]:
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


def _group(data: _Bytes, version: int) -> dict[str, Any]:
    data.compact = version >= _FLEXIBLE

    def member() -> dict[str, Any]:
        found: dict[str, Any] = {
            "member": data.text(),
            "instance": data.text() if version >= 3 else None,
            "client": data.text(),
            "host": data.text(),
        }
        if version >= 1:
            found["rebalance_timeout_ms"] = data.int32()
        found["session_timeout_ms"] = data.int32()
        data.blob()
        data.blob()
        data.tags()
        return found

    detail = {
        "protocol_type": data.text(),
        "generation": data.int32(),
        "assignor": data.text(),
        "leader": data.text(),
        "state_ts": data.int64() if version >= 2 else None,
    }
    members = data.many(member)
    data.tags()
    data.end()
    return {**detail, "members": len(members), "clients": sorted({m["client"] or "" for m in members})}


def _partitions(data: _Bytes) -> dict[str, list[int]]:
    """Topic id -> partitions."""

    def topic() -> tuple[str, list[int]]:
        found = data.uuid(), data.many(data.int32)
        data.tags()
        return found

    return dict(data.many(topic))


def _member(data: _Bytes) -> dict[str, Any]:
    return {
        "instance": data.text(),
        "rack": data.text(),
        "client": data.text(),
        "host": data.text(),
        "topics": data.many(data.text),
        "topics_regex": data.text(),
        "rebalance_timeout_ms": data.int32(),
        "assignor": data.text(),
    }


def _assignment(data: _Bytes) -> dict[str, Any]:
    return {
        "epoch": data.int32(),
        "previous_epoch": data.int32(),
        "state": data.int8(),
        "assigned": _partitions(data),
        "to_revoke": _partitions(data),
    }


# Key version -> kind, whether the key names a member, and the value's fields.
_NEWER: dict[int, tuple[str, bool, Callable[[_Bytes], dict[str, Any]]]] = {
    3: ("consumer_group", False, lambda data: {"epoch": data.int32()}),
    5: ("consumer_member", True, _member),
    6: ("consumer_target", False, lambda data: {"epoch": data.int32()}),
    7: ("consumer_target_member", True, lambda data: {"assigned": _partitions(data)}),
    8: ("consumer_assignment", True, _assignment),
}
