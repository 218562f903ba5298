"""Policies, holds, retention and generations together: no prune takes what a kept restore point needs.

Lives of a source are made up as rows, and a prune of them is planned by the queries that a real one asks.
What must stay is worked out here from the promises alone: the recovery window, the redundancy, the keep
rules and the holds.
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
# The period of each keep rule that an instant is in.
PERIODS = {
    "last": "{:%c.%f}", "hourly": "{:%Y %j %H}", "daily": "{:%Y %j}", "weekly": "{:%G %V}",
    "monthly": "{:%Y %m}", "yearly": "{:%Y}",
}  # fmt: skip


@dataclass
class Life:
    """A source: its backups with the topics and files of each, and what was promised of it."""

    now: int
    backups: list[Backup] = field(default_factory=list)
    scopes: dict[int, list[Scope]] = field(default_factory=dict)
    files: dict[int, list[DataFile]] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    window: int | None = None
    redundancy: int | None = None
    keep: dict[str, int] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        rows: list[Row] = [*self.backups]
        rows += [row for some in (*self.scopes.values(), *self.files.values()) for row in some]
        rows += [
            Hold(source="prod", backup_id=backup_id(number), at=1, actor="me", reason="law")
            for number in sorted(self.held)
        ]
        if self.window is not None or self.redundancy is not None or self.keep:
            promised = {"window_days": self.window, "redundancy": self.redundancy}
            promised |= {f"keep_{rule}": count for rule, count in self.keep.items()}
            rows.append(Policy(source="prod", at=1, actor="me", **promised))
        return rows

    def kept(self) -> set[int]:
        """The backups that were promised to be restorable, by number."""
        fulls = [b.number for b in self.backups if b.parent is None]
        by_window, by_redundancy, by_rules = set(), set(), set()
        if self.window is not None:
            begins = self.now - self.window * DAY_MS
            before = [b.number for b in self.backups if b.end_ts <= begins]
            # Before the first full that a window can begin with, nothing is outside it.
            from_on = max(before) if any(number in before for number in fulls) else 0
            by_window = {b.number for b in self.backups if b.number >= from_on}
        if self.redundancy is not None:
            first = fulls[-self.redundancy] if len(fulls) >= self.redundancy else 0
            by_redundancy = {b.number for b in self.backups if b.number >= first}
        for rule, count in self.keep.items():
            newest = {PERIODS[rule].format(instant(b.end_ts)): b.number for b in self.backups}
            by_rules |= set(sorted(newest.values())[-count:])
        return self.held | by_window | by_redundancy | by_rules

    def needs(self, number: int) -> tuple[set[int], set[str]]:
        """The backups and the files that a restore of all topics of a backup reads."""
        base = int(self.backups[number - 1].base[-8:], 16)
        chain = range(base, number + 1)
        of = {s.scope: s.generation for s in self.scopes[number]}
        return set(chain), {
            row.path for n in chain for row in self.files[n] if row.generation == of.get(row.scope)
        }


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def life(random: Random) -> Life:
    """Some twenty backups of three topics, a few hours to two days apart."""
    now = time.time_ns() // 1_000_000
    made = Life(
        now, window=random.choice([None, None, 1, 5, 20]), redundancy=random.choice([None, None, 1, 2])
    )
    retention = random.choice([DAY_MS // 2, 3 * DAY_MS])
    count = random.randint(2, 24)
    ages = sorted((random.randint(0, 30 * DAY_MS) for _ in range(count)), reverse=True)
    base = generation = 0
    for number, age in enumerate(ages, 1):
        full = number == 1 or random.random() < 0.2
        base = number if full else base
        anew = full or random.random() < 0.2
        generation += anew
        (row,) = [manifest(number, base=base)[0].backup]
        made.backups.append(replace(row, end_ts=now - age, finished_at=1000 * (now - age)))
        scopes, files = [], []
        for topic in TOPICS:
            settings = {"cleanup.policy": POLICIES[topic], "retention.ms": str(retention)}
            compacted = "compact" in POLICIES[topic]
            where = {"backup_id": backup_id(number), "scope": topic, "epoch": topic.encode().hex()}
            kept = {"settings": json.dumps(settings), "generation": generation if compacted else 0}
            scopes.append(filled(Scope, **where, **kept, regions=REGIONS))
            for region in range(REGIONS):
                start = 0 if full or (anew and compacted) else 10 * (number - 1)
                changes = {"epoch": where["epoch"], "generation": kept["generation"]}
                span = {"start_position": start, "end_position": 10 * number}
                span |= {"min_ts": now - age - 1000, "max_ts": now - age}
                if random.random() < 0.9:
                    files.append(replace(data_file(number, region=region, topic=topic), **changes, **span))
        made.scopes[number], made.files[number] = scopes, files
        if random.random() < 0.05:
            made.held.add(number)
    rules = random.sample(sorted(PERIODS), random.choice([0, 0, 1, 2]))
    made.keep = {rule: random.randint(1, 5) for rule in rules}
    return made


def planned(reader: CatalogReader, now: int) -> PrunePlan:
    """As a prune plans without anything asked."""
    going = [Leaving(**row) for row in reader.rows("prune_backups", source="prod")]
    kept = [row["backup_id"] for row in reader.rows("prune_kept", source="prod")]
    return plan_prune(reader, "prod", backups=going, kept=kept, now=now)


def check(seed: int, folder: Path) -> int:
    """Plans a prune of a life, and looks at what it takes and at what views say afterwards; files that go."""
    made = life(Random(seed))
    rows = made.rows()
    reader = reader_of(folder, rows)
    plan = planned(reader, made.now)
    leaving = {backup.backup_id for backup in plan.backups}
    removals = [
        Removal(**row)
        for batch in reader.query("prune_removals", prune_id="p", at=0)
        for row in batch.to_pylist()
    ]
    gone = {row.path for row in removals}
    kept = made.kept()
    for number in kept:
        backups, files = made.needs(number)
        assert not {backup_id(n) for n in backups} & leaving, f"seed {seed}: backup {number}"
        assert not files & gone, f"seed {seed}: backup {number}"
    # Afterwards the views show what can be restored, and of it all that was promised.
    states = [
        replace(row, state="deleted") if isinstance(row, Backup) and row.backup_id in leaving else row
        for row in rows
    ]
    after = reader_of(folder, [*states, *plan.floors("p", 1), *removals])
    points = {
        (r["backup_id"], r["scope"])
        for r in after.select("SELECT * FROM restore_points").read_all().to_pylist()
    }
    assert {(backup_id(number), topic) for number in kept for topic in TOPICS} <= points
    intact = {row["backup_id"] for row in after.rows("list_backups", source=None) if row["intact"]}
    assert intact == {backup for backup, _ in points}
    return len(gone)


@pytest.mark.parametrize("seed", [0, 1, 3, 11])
def test_a_few_lives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.long
def test_many_lives(tmp_path: Path) -> None:
    assert sum(check(seed, tmp_path) for seed in range(200)) > 200


def test_without_a_promise_retention_and_generations_are_cut(tmp_path: Path) -> None:
    """The model must not pass because nothing ever goes."""
    made = replace(life(Random(2)), window=None, redundancy=None, keep={}, held=set())
    plan = planned(reader_of(tmp_path, made.rows()), made.now)
    assert {portion.reason for portion in plan.portions} == {"time", "generation"}
    assert plan.bound == ()
