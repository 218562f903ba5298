"""Policies, holds, retention and generations together: no prune deletes what a kept restore point needs.

The tests make up sources as random rows, and plan a prune of each with the queries of a real prune. A model
derives what must stay from the promises alone: the recovery window, the redundancy, the keep rules and the
holds.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from tests.support.catalogs import backup_id, data_file, manifest
from tests.support.made_backups import reader_of
from tests.support.rows import filled

from lakebackup.plan.upkeep.prune import Leaving, PrunePlan, plan_prune
from lakebackup.rows.backups import Backup, DataFile, Removal, Scope
from lakebackup.rows.base import Row
from lakebackup.rows.upkeep import Hold, Policy
from lakebackup.store.reader import CatalogReader

DAY_MS = 86_400_000
REGIONS = 2
TOPICS = ("plain", "keyed", "both")
POLICIES = {"plain": "delete", "keyed": "compact", "both": "compact,delete"}
# For each keep rule, the format string that gives the period of an instant.
PERIODS = {
    "last": "{:%c.%f}", "hourly": "{:%Y %j %H}", "daily": "{:%Y %j}", "weekly": "{:%G %V}",
    "monthly": "{:%Y %m}", "yearly": "{:%Y}",
}  # fmt: skip


@dataclass
class SourceModel:
    """A source: its backups, their topics and files, and what its policy and its holds promise."""

    now_ms: int
    backups: list[Backup] = field(default_factory=list)
    scopes: dict[int, list[Scope]] = field(default_factory=dict)
    files: dict[int, list[DataFile]] = field(default_factory=dict)
    held_numbers: set[int] = field(default_factory=set)
    window: int | None = None
    redundancy: int | None = None
    keep: dict[str, int] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        rows: list[Row] = [*self.backups]
        rows += [row for group in (*self.scopes.values(), *self.files.values()) for row in group]
        rows += [
            Hold(source="prod", backup_id=backup_id(number), at=1, actor="me", reason="law")
            for number in sorted(self.held_numbers)
        ]
        if self.window is not None or self.redundancy is not None or self.keep:
            columns = {"window_days": self.window, "redundancy": self.redundancy}
            columns |= {f"keep_{rule}": count for rule, count in self.keep.items()}
            rows.append(Policy(source="prod", at=1, actor="me", **columns))
        return rows

    def promised(self) -> set[int]:
        """The numbers of the backups that must stay restorable."""
        fulls = [b.number for b in self.backups if b.parent is None]
        by_window, by_redundancy, by_rules = set(), set(), set()
        if self.window is not None:
            window_start_ms = self.now_ms - self.window * DAY_MS
            earlier = [b.number for b in self.backups if b.end_ts <= window_start_ms]
            # A window that begins before the end of the first full has no backup outside it.
            first_in_window = max(earlier) if any(number in earlier for number in fulls) else 0
            by_window = {b.number for b in self.backups if b.number >= first_in_window}
        if self.redundancy is not None:
            first = fulls[-self.redundancy] if len(fulls) >= self.redundancy else 0
            by_redundancy = {b.number for b in self.backups if b.number >= first}
        for rule, count in self.keep.items():
            newest = {PERIODS[rule].format(instant(b.end_ts)): b.number for b in self.backups}
            by_rules |= set(sorted(newest.values())[-count:])
        return self.held_numbers | by_window | by_redundancy | by_rules

    def needs(self, number: int) -> tuple[set[int], set[str]]:
        """The numbers of the backups and the paths of the files that a restore of a backup's topics reads."""
        base = int(self.backups[number - 1].base[-8:], 16)
        chain = range(base, number + 1)
        generations = {s.scope: s.generation for s in self.scopes[number]}
        return set(chain), {
            row.path for n in chain for row in self.files[n] if row.generation == generations.get(row.scope)
        }


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def random_source(random: Random) -> SourceModel:
    """A source with up to 24 backups of three topics in the last 30 days."""
    now_ms = time.time_ns() // 1_000_000
    source = SourceModel(
        now_ms, window=random.choice([None, None, 1, 5, 20]), redundancy=random.choice([None, None, 1, 2])
    )
    retention = random.choice([DAY_MS // 2, 3 * DAY_MS])
    count = random.randint(2, 24)
    ages = sorted((random.randint(0, 30 * DAY_MS) for _ in range(count)), reverse=True)
    base = generation = 0
    for number, age in enumerate(ages, 1):
        full = number == 1 or random.random() < 0.2
        base = number if full else base
        new_generation = full or random.random() < 0.2
        generation += new_generation
        (row,) = [manifest(number, base=base)[0].backup]
        source.backups.append(replace(row, end_ts=now_ms - age, finished_at=1000 * (now_ms - age)))
        scopes, files = [], []
        for topic in TOPICS:
            settings = {"cleanup.policy": POLICIES[topic], "retention.ms": str(retention)}
            compacted = "compact" in POLICIES[topic]
            key_columns = {"backup_id": backup_id(number), "scope": topic, "epoch": topic.encode().hex()}
            topic_columns = {"settings": json.dumps(settings), "generation": generation if compacted else 0}
            scopes.append(filled(Scope, **key_columns, **topic_columns, regions=REGIONS))
            for region in range(REGIONS):
                start = 0 if full or (new_generation and compacted) else 10 * (number - 1)
                changes = {"epoch": key_columns["epoch"], "generation": topic_columns["generation"]}
                span = {"start_position": start, "end_position": 10 * number}
                span |= {"min_ts": now_ms - age - 1000, "max_ts": now_ms - age}
                if random.random() < 0.9:
                    files.append(replace(data_file(number, region=region, topic=topic), **changes, **span))
        source.scopes[number], source.files[number] = scopes, files
        if random.random() < 0.05:
            source.held_numbers.add(number)
    rules = random.sample(sorted(PERIODS), random.choice([0, 0, 1, 2]))
    source.keep = {rule: random.randint(1, 5) for rule in rules}
    return source


def plan_of(reader: CatalogReader, now_ms: int) -> PrunePlan:
    """The plan of a prune without options."""
    leaving = [Leaving(**row) for row in reader.rows("prune_backups", source="prod")]
    kept_ids = [row["backup_id"] for row in reader.rows("prune_kept", source="prod")]
    return plan_prune(reader, "prod", backups=leaving, protected_ids=kept_ids, now_ms=now_ms)


def check(seed: int, folder: Path) -> int:
    """Plans a prune of a random source, and checks what it deletes and what the views show afterwards.

    Returns the number of files that it deletes.
    """
    source = random_source(Random(seed))
    rows = source.rows()
    reader = reader_of(folder, rows)
    plan = plan_of(reader, source.now_ms)
    leaving = {backup.backup_id for backup in plan.backups}
    removals = [
        Removal(prune_id="p", at=0, **row)
        for row in plan.with_relations(reader).rows(plan.removals.name, **plan.removals.parameters)
    ]
    removed_paths = {row.path for row in removals}
    promised = source.promised()
    for number in promised:
        backups, files = source.needs(number)
        assert not {backup_id(n) for n in backups} & leaving, f"seed {seed}: backup {number}"
        assert not files & removed_paths, f"seed {seed}: backup {number}"
    # Afterwards the views show the restore points that are left, and every promised one is among them.
    states = [
        replace(row, state="deleted") if isinstance(row, Backup) and row.backup_id in leaving else row
        for row in rows
    ]
    reader_after = reader_of(folder, [*states, *plan.floors("p", 1), *removals])
    points = {
        (r["backup_id"], r["scope"])
        for r in reader_after.select("SELECT * FROM restore_points").read_all().to_pylist()
    }
    assert {(backup_id(number), topic) for number in promised for topic in TOPICS} <= points
    intact = {row["backup_id"] for row in reader_after.rows("list_backups", source=None) if row["intact"]}
    assert intact == {backup for backup, _ in points}
    return len(removed_paths)


@pytest.mark.parametrize("seed", [0, 1, 3, 11])
def test_prunes_of_a_few_random_sources(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.long
def test_prunes_of_many_random_sources(tmp_path: Path) -> None:
    assert sum(check(seed, tmp_path) for seed in range(200)) > 200


def test_without_promises_a_prune_cuts_by_retention_and_generation(tmp_path: Path) -> None:
    """The other tests must not pass only because nothing is ever deleted."""
    source = replace(random_source(Random(2)), window=None, redundancy=None, keep={}, held_numbers=set())
    plan = plan_of(reader_of(tmp_path, source.rows()), source.now_ms)
    assert {portion.reason for portion in plan.portions} == {"time", "generation"}
    assert plan.bound == ()
