"""The numbers that the next backup takes, over rows made by hand."""

from __future__ import annotations

from typing import Any, cast

from tests.support.rows import filled

from lakebackup.rows.backups import Scope
from lakebackup_jobs.lifecycle.tasks.numbers import next_sequences


class Reader:
    """A source's catalog of 1,000 backups: topic, partition and backup of each file."""

    def __init__(self, *files: tuple[str, str, int]) -> None:
        self.files = files
        self.looked_at: list[tuple[int, str | None]] = []

    def rows(self, name: str, **asked: Any) -> list[dict[str, Any]]:
        if name != "next_sequence":
            return [{"number": 1000 if name == "latest_number" else None}]
        since, scopes = asked["since"], asked["scopes"]
        self.looked_at.append((since, scopes))
        return [
            {
                "scope": scope, "epoch": "e1", "region": region, "next_sequence": added_in, "raw_bytes": 1,
                "entries": 1,
            }
            for scope, region, added_in in self.files
            if added_in >= since and (scopes is None or scope in scopes.split(","))
        ]  # fmt: skip


def sequences(reader: Reader, *places: tuple[str, str]) -> dict[tuple[str, str], int]:
    topics = [filled(Scope, scope=scope, epoch="e1") for scope in ("orders", "rare", "new")]
    return next_sequences(cast("Any", reader), "prod", topics, set(places))


def test_the_last_backups_are_looked_at_first() -> None:
    reader = Reader(("orders", "0", 999), ("rare", "0", 3))
    assert sequences(reader, ("orders", "0")) == {("orders", "0"): 999}
    assert reader.looked_at == [(992, "orders")]


def test_earlier_ones_are_looked_at_for_the_topics_that_are_left() -> None:
    reader = Reader(("orders", "0", 999), ("orders", "1", 800), ("rare", "0", 3), ("rare", "1", 999))
    wanted = ("orders", "0"), ("orders", "1"), ("rare", "0"), ("new", "0")
    # Those of a topic's other partitions come with it: they say how large its records are.
    found = {("orders", "0"): 999, ("orders", "1"): 800, ("rare", "0"): 3, ("rare", "1"): 999}
    assert sequences(reader, *wanted) == found
    assert reader.looked_at == [(992, "new,orders,rare"), (744, "new,orders,rare"), (0, "new,rare")]


def test_a_partition_without_a_file_leaves_the_newest_of_the_others() -> None:
    reader = Reader(("orders", "0", 3), ("orders", "0", 999))
    assert sequences(reader, ("orders", "1")) == {("orders", "0"): 999}
