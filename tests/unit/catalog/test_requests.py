"""The identity of requests: no field is forgotten, and records of earlier versions stay valid."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from lakebackup import requests
from lakebackup.plan.queues import restore as restore_queue
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup.plan.topics import request as restore_request
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup_jobs.queues.backup import request as backup_queue
from lakebackup_jobs.queues.backup.request import QueueRequest
from lakebackup_jobs.snapshots import request as snapshot_request
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.topics import resume
from lakebackup_jobs.topics.request import BackupRequest


@dataclass(frozen=True)
class EarlierRequest:
    destination: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaterRequest(EarlierRequest):
    strict: bool = False
    limit: int | None = None


def recorded(request: EarlierRequest) -> dict[str, Any]:
    return requests.digest_fields(request, always=("topics",), never=("destination",))


def test_an_added_field_counts_and_earlier_records_stay_valid() -> None:
    assert recorded(EarlierRequest("a", ("t",))) == recorded(LaterRequest("b", ("t",))) == {"topics": ["t"]}
    assert recorded(LaterRequest("a", strict=True, limit=0)) == {"topics": [], "strict": True, "limit": 0}
    digests = {
        requests.digest("s", recorded(request), always=("topics",))
        for request in (
            LaterRequest("a"),
            LaterRequest("a", strict=True),
            LaterRequest("a", limit=1),
            LaterRequest("a", limit=2),
        )
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("kind", "compared", "ignored"),
    [
        (BackupRequest, (*resume._COMPARED_FIELDS, *resume._FROZEN_FIELDS), resume._IGNORED_FIELDS),
        (SnapshotRequest, snapshot_request._COMPARED_FIELDS, snapshot_request._IGNORED_FIELDS),
        (QueueRequest, backup_queue._COMPARED_FIELDS, backup_queue._IGNORED_FIELDS),
        (RestoreRequest, restore_request._IDENTITY_FIELDS, restore_request._IGNORED_FIELDS),
        (QueueRestoreRequest, restore_queue._IDENTITY_FIELDS, restore_queue._IGNORED_FIELDS),
    ],
)
def test_the_named_fields_exist(kind: Any, compared: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    assert {*compared, *ignored} <= {field.name for field in fields(kind)}
    assert not {*compared} & {*ignored}


TOPICS = RestoreRequest("d", "dir:x")
QUEUE = QueueRestoreRequest("d", "s", "kafka://h:1", "f")


def test_restores_of_an_earlier_version_are_recognized() -> None:
    """Digests as version 0.1.0 made them."""
    assert TOPICS.digest("prod") == "3d1f6e90b1355a189dcc6c86b9925805"
    full = replace(
        TOPICS, topics=("b", "a"), patterns=("p",), maps={"z": "y", "b": "c"}, to_ts=5, from_ts=1, backup="B",
        partial=True, append=True, continued=True, repartition=True, partitions=3, allow_gaps=True,
        approximate=True, groups=("g",), settings="saved", zero_as_one=True,
    )  # fmt: skip
    assert full.digest("prod") == "bc00250066050fe7b1e56f5472add25a"
    assert QUEUE.digest() == "532ff0a0876fc58f9fed3986800e8d90"
    full_queue = replace(
        QUEUE, backup="b", to_tid=4, to_ts=3, maps={"z": "y", "b": "c"}, append=True, keep_open=True,
        settings="saved",
    )  # fmt: skip
    assert full_queue.digest() == "c08cff343636b08cd6f53726ca9b5f75"


def test_backups_of_an_earlier_version_are_recognized() -> None:
    """The records are those that the earlier version wrote."""
    assert resume.identity_of(BackupRequest("d", ("b", "a"), {}, note="n")) == {
        "topics": ["a", "b"], "patterns": [], "isolation": "read_committed", "groups": "all",
        "mode": "incr-diff", "level": 1, "parent": None, "new_generation": False, "codec": "zstandard",
        "compression_level": None, "target_bytes": 128 << 20, "roll_ms": None, "note": "n",
    }  # fmt: skip
    assert SnapshotRequest("d", ("/tmp",), sidecars=(("meta", "f"),)).identity == {
        "layout": "plain", "mode": "auto", "pack_below": 1 << 20, "verify_unchanged": False,
        "find_same": False, "taken_at": None, "note": None, "paths": ["/tmp"],
        "always": ["CURRENT", "MANIFEST-*"], "sidecars": [["meta", "f"]],
    }  # fmt: skip
    assert QueueRequest("d", "s", ("b", "a"), {}).identity == {
        "mode": "auto", "snapshot": None, "positions": None, "config": None, "schema": None,
        "codec": "zstandard", "compression_level": None, "note": None, "topics": ["a", "b"],
        "names": {"tid": "tid", "transaction": "transaction", "kind": "kind", "tid_format": "text"},
    }  # fmt: skip
