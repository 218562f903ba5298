# In `make test`: other tools read what lakebackup holds, and lakebackup reads what they hold.
"""A team that works with Couchbase wants the orders in the format of its own tool.

The backup of the topic is exported as an archive, which that tool reads, and the archive is imported as a
source of its own. Its documents are restored as JSON: the newest value of each key, and no deleted one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.archives import read_archive
from tests.support.kafka_truth import Record

if TYPE_CHECKING:
    from tests.support.command_line import Terminal

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def order(key: bytes, value: bytes | None) -> Record:
    return Record(0, key, value, (), 1_700_000_000_000)


def test_an_exported_archive_is_imported_and_its_documents_are_restored(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    truth.produce(broker.bootstrap, orders, [order(b"anna", b'{"total": 5}'), order(b"ben", b'{"total": 7}')])
    lakebackup(f"backup topics {orders} --source prod")
    truth.produce(broker.bootstrap, orders, [order(b"anna", b'{"total": 6}'), order(b"ben", None)])
    lakebackup(f"backup topics {orders} --source prod")

    lakebackup("archive export prod --to archive")
    archive = read_archive(Path("archive"))
    assert archive.modes == ["full", "diff"]
    assert {key: document[0] for (_, key), document in archive.docs[orders].items()} == {
        b"anna": b'{"total": 6}'
    }

    lakebackup("archive import archive --source couchbase")
    lakebackup("archive restore couchbase --to documents")
    lines = [
        line for path in Path("documents").rglob("*.jsonl") for line in path.read_text("utf-8").splitlines()
    ]
    assert [(row["key"], row["value"]) for row in map(json.loads, lines)] == [("anna", {"total": 6})]
