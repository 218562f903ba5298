"""The numbers that the next backup takes, computed from rows made by hand."""

from __future__ import annotations

from typing import Any, cast

from tests.support.rows import filled

from lakebackup.rows.backups import Scope
from lakebackup_jobs.lifecycle.tasks.numbers import next_sequences


class Reader:
    """A source's catalog of 1,000 backups: topic, partition and backup of each file."""

    def __init__(self, *files: tuple[str, str, int]) -> None:
        self.files = files
        self.queries: list[tuple[int, str | None]] = []

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        if name != "next_sequence":
            return [{"number": 1000 if name == "latest_number" else None}]
        since, scopes = parameters["since"], parameters["scopes"]
        self.queries.append((since, scopes))
        return [
            {
                "scope": scope, "epoch": "e1", "region": region, "next_sequence": added_in, "raw_bytes": 1,
                "entries": 1,
            }
            for scope, region, added_in in self.files
            if added_in >= since and (scopes is None or scope in scopes.split(","))
        ]  # fmt: skip


def sequences(reader: Reader, *partitions: tuple[str, str]) -> dict[tuple[str, str], int]:
    topics = [filled(Scope, scope=scope, epoch="e1") for scope in ("orders", "rare", "new")]
    return next_sequences(cast("Any", reader), "prod", topics, set(partitions))


def test_the_last_backups_are_read_first() -> None:
    reader = Reader(("orders", "0", 999), ("rare", "0", 3))
    assert sequences(reader, ("orders", "0")) == {("orders", "0"): 999}
    assert reader.queries == [(992, "orders")]


def test_earlier_backups_are_read_for_the_topics_still_missing() -> None:
    reader = Reader(("orders", "0", 999), ("orders", "1", 800), ("rare", "0", 3), ("rare", "1", 999))
    partitions = ("orders", "0"), ("orders", "1"), ("rare", "0"), ("new", "0")
    # Files of a topic's other partitions are read too: they show how large its records are.
    expected = {("orders", "0"): 999, ("orders", "1"): 800, ("rare", "0"): 3, ("rare", "1"): 999}
    assert sequences(reader, *partitions) == expected
    assert reader.queries == [(992, "new,orders,rare"), (744, "new,orders,rare"), (0, "new,rare")]


def test_without_files_of_a_partition_the_newest_of_the_others_is_returned() -> None:
    reader = Reader(("orders", "0", 3), ("orders", "0", 999))
    assert sequences(reader, ("orders", "1")) == {("orders", "0"): 999}
