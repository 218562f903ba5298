"""Messages that a task leaves out: how they are named, and the gaps that they leave."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.support.catalogs import made_position

from lakebackup.errors import UsageProblem
from lakebackup.plan.partitions import BackupRows
from lakebackup_jobs.logs import skips
from lakebackup_jobs.logs.capture.publish import passed
from lakebackup_jobs.logs.skips import Message

ROWS = BackupRows("b", "prod", 1)
POSITION = made_position(10, 20, backup_id="b", source="prod", scope="t", epoch="e1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shop.public.a[3] offset 17 is not JSON.", Message("shop.public.a", 3, 17)),
        ("The event at topic kv-1, partition 0, offset 9 cannot be read", Message("kv-1", 0, 9)),
        ("There is no topic.", None),
    ],
)
def test_the_message_of_an_error_is_named_as_skip_takes_it(text: str, message: Message | None) -> None:
    assert skips.named_in(text) == message
    if message:
        assert skips.parse(message.text) == message


@pytest.mark.parametrize("text", ["a:1", "a:b:1", "a/b:0:1", ":0:1", "a:0:-1", "a:0:1:2"])
def test_a_text_that_names_no_message_is_a_usage_problem(text: str) -> None:
    with pytest.raises(UsageProblem, match="names no message"):
        skips.parse(text)


def test_records_are_split_by_the_skipped_messages() -> None:
    records = pa.RecordBatch.from_pydict({"offset": [4, 5, 6]})
    skipped = skips.by_partition(["t:0:5", "t:1:4"])
    remaining, dropped = skips.split(records, skipped, "t", 0)
    assert dropped is not None
    assert (remaining["offset"].to_pylist(), dropped["offset"].to_pylist()) == ([4, 6], [5])
    assert skips.split(records, skipped, "u", 0) == (records, None)
    assert skips.split(records, {"t/0": (9,)}, "t", 0) == (records, None)


def test_a_message_that_a_flush_passes_is_a_gap_once() -> None:
    texts = ("t:0:12", "t:0:20", "t:1:12", "own:0:3")
    gaps = skips.gaps(ROWS, texts, [POSITION], set(), 70)
    assert [(gap.scope, gap.epoch, gap.from_position, gap.to_position, gap.reason) for gap in gaps] == [
        ("t", "e1", 12, 13, "skipped"),
        ("own", "-", 3, 4, "skipped"),
    ]
    assert skips.gaps(ROWS, texts, [POSITION], {("t", "0", 12), ("own", "0", 3)}, 70) == []


def test_a_message_that_a_flush_did_not_reach_is_no_gap_yet() -> None:
    [gap] = skips.gaps(ROWS, ["t:0:12"], [POSITION], set(), 70)
    purged = replace(gap, reason="purged")
    for end, expected in ((12, ()), (13, (gap,))):
        assert passed([gap], {("t", "0"): end}) == expected
        assert passed([purged], {("t", "0"): end}) == (purged,)
