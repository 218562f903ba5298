"""Plans a prune.

1. The policy chooses the backups to delete whole, and each topic's rule where to cut its partitions.
2. What unfinished restores read, and what restore points of protected backups need, limits the cuts.

The plan is a value, and names no object: a preview needs none. A run derives the objects from the backups and
the cuts, with the query `removals`, and `require_proof` compares them with what stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import pyarrow as pa

from lakebackup.errors import NotFound, Refused
from lakebackup.rows.backups import Floor
from lakebackup.rules import patterns, topic_settings
from lakebackup.rules.kinds import no_source, require_known
from lakebackup.rules.retention import AS_SET, History, Limits, Rule, rule

DAY_MS = 86_400_000


class Questions(Protocol):
    """What planning needs of a catalog: the rows of queries that return few, and relations to query.

    `rows` runs a query. `with_rows` returns the same with one more relation, defined by its rows.
    """

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]: ...

    def with_rows(self, name: str, rows: pa.Table) -> Self: ...


Q = TypeVar("Q", bound=Questions)


class Statement(NamedTuple):
    """A query of `sql/queries` by its name, and its parameters."""

    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition that an unfinished restore reads."""

    scope: str
    epoch: str
    region: str
    restore_id: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A backup to delete whole, the reason, and what it still holds; `end_ts` in the source's unit."""

    backup_id: str
    kind: str
    level: int
    end_ts: int
    reason: str
    because_of: str | None
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut of one partition. It deletes the files that end at or before `low_position`, and those of
    generations before `generation`. `time_floor`: the position up to which it deletes because of time."""

    source: str
    scope: str
    epoch: str
    region: str
    low_position: int
    time_floor: int
    generation: int


@dataclass(frozen=True, slots=True)
class Portion:
    """What is deleted of one partition for one reason. `max_ts`: the time of the newest record in it."""

    scope: str
    epoch: str
    region: str
    reason: str
    files: int
    bytes: int
    max_ts: int


@dataclass(frozen=True, slots=True)
class Expired:
    """What is deleted of a table of snapshots, and of how much. `scope` empty: packs with files of several
    tables. `idle` files are no longer needed but stay, since their packs hold files that are; `idle_bytes`
    None: their sizes are unknown."""

    scope: str
    files: int
    bytes: int
    of_files: int
    of_bytes: int
    idle: int
    idle_bytes: int | None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What is deleted of a source: `backups` whole, each before those that it depends on. Subclasses add what
    their kind of source has besides.

    `files`, `bytes`: the totals that the plan examined. The plan names no object: `removals` chooses them.
    """

    source: str
    backups: tuple[Leaving, ...]
    files: int
    bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not self.backups

    @property
    def removals(self) -> Statement:
        """The query of the objects to delete, those of the newest backups first, as rows of removals without
        the prune."""
        return Statement("prune_removals", {"source": self.source})

    def with_relations(self, questions: Q) -> Q:
        """The catalog with the relations `leaving` and `cuts`, which `removals` and the proofs read."""
        return _with_cuts(with_leaving(questions, self.backups), ())

    @property
    def deleted_portions(self) -> Sequence[Portion | Leaving | Expired]:
        """All that is deleted, each part with its files and bytes."""
        return self.backups

    @property
    def gone_files(self) -> int:
        return sum(portion.files for portion in self.deleted_portions)

    @property
    def gone_bytes(self) -> int:
        return sum(portion.bytes for portion in self.deleted_portions)

    @property
    def whole_backups(self) -> tuple[tuple[str, str], ...]:
        """The id of each backup that is deleted whole, and the reason."""
        return tuple((backup.backup_id, backup.reason) for backup in self.backups)

    def require_proof(self, questions: Questions) -> None:
        """Raise Refused when a restore point that stays would lose what it needs. The catalog has the objects
        to delete as the relation `doomed`."""
        raise NotImplementedError

    def floors(self, prune_id: str, time_us: int) -> list[Floor]:  # noqa: ARG002
        """The rows that record from which position partitions can be restored afterwards; `time_us` in us."""
        return []


@dataclass(frozen=True, slots=True)
class TopicsPrune(PrunePlan):
    """A prune of topics, also of those of archives. `files`, `bytes`: what the topics with a rule and the
    deleted backups hold now. `skipped_topics`: topics without a rule, and why. `bound`: each (topic,
    partition) of which restore points that stay need more than the topic's retention keeps."""

    rules: tuple[Rule, ...]
    cuts: tuple[Cut, ...]
    portions: tuple[Portion, ...]
    held_partitions: tuple[HeldPartition, ...]
    skipped_topics: tuple[tuple[str, str], ...]
    bound: tuple[tuple[str, str], ...]

    @property
    def is_empty(self) -> bool:
        """Whether no backup and no part of a partition is deleted."""
        return not self.backups and not self.cuts

    def with_relations(self, questions: Q) -> Q:
        """The catalog with the relations `leaving` and `cuts`."""
        return _with_cuts(with_leaving(questions, self.backups), self.cuts)

    @property
    def deleted_portions(self) -> Sequence[Portion | Leaving | Expired]:
        """Parts of partitions, and backups."""
        return (*self.portions, *self.backups)

    def require_proof(self, questions: Questions) -> None:
        """Raise Refused unless restore points keep their files, and chains their backups."""
        questions = self.with_relations(questions)
        require_proof(
            questions.rows("prune_proof", source=self.source),
            questions.rows("prune_chains", source=self.source),
        )

    def floors(self, prune_id: str, time_us: int) -> list[Floor]:
        """A row for each cut."""
        reasons: dict[tuple[str, str, str], set[str]] = {}
        for p in self.portions:
            reasons.setdefault((p.scope, p.epoch, p.region), set()).add(p.reason)
        return [
            Floor(
                prune_id=prune_id,
                at=time_us,
                source=c.source,
                scope=c.scope,
                epoch=c.epoch,
                region=c.region,
                low_position=c.low_position,
                generation=c.generation,
                reason=",".join(sorted(reasons[c.scope, c.epoch, c.region])),
            )
            for c in self.cuts
        ]


@dataclass(frozen=True, slots=True)
class SnapshotsPrune(PrunePlan):
    """A prune of snapshots. Their backups hold no objects of their own: `expired` is deleted with them."""

    expired: tuple[Expired, ...]

    @property
    def removals(self) -> Statement:
        """The query of the objects that no backup that stays has a file in."""
        return Statement("prune_expired", {"source": self.source})

    @property
    def deleted_portions(self) -> Sequence[Portion | Leaving | Expired]:
        """Objects of tables, and backups."""
        return (*self.backups, *self.expired)

    def require_proof(self, questions: Questions) -> None:
        """Raise Refused unless every backup that stays has its objects."""
        questions = self.with_relations(questions)
        require_proof(unresolved=questions.rows("prune_resolved", source=self.source))


@dataclass(frozen=True, slots=True)
class ImportedPrune(PrunePlan):
    """What is obsolete of a source that another program backs up. It is a report: nothing is deleted."""


@dataclass(frozen=True, slots=True)
class QueuesPrune(PrunePlan):
    """A prune of an engine. `released`: the backups of its snapshots on which no full depends afterwards."""

    released: tuple[str, ...]

    def require_proof(self, questions: Questions) -> None:
        """Raise Refused unless every chain keeps its backups, and every full its snapshot."""
        questions = self.with_relations(questions)
        require_proof(
            unchained=questions.rows("prune_chains", source=self.source),
            unresolved=questions.rows("prune_queue_proof", source=self.source),
        )


def window_of(source: str, *, now_ms: int, days: int, policy: Mapping[str, Any] | None = None) -> pa.Table:
    """A relation to use instead of the view `policies`, with a recovery window of `days` days. `now_ms` in
    ms.

    The window replaces the policy's window and redundancy. The policy's other rules are promises of their own
    and hold whatever the window.
    """
    row = {**(policy or {"min_redundancy": 1}), "source": source}
    row |= {"window_days": days, "window_from_ts": now_ms - days * DAY_MS, "redundancy": None}
    return pa.Table.from_pylist([row], in_force_schema())


def plan_prune(
    questions: Questions,
    source: str,
    *,
    backups: Sequence[Leaving] = (),
    protected_ids: Sequence[str] = (),
    names: Sequence[str] = (),
    expressions: Sequence[str] = (),
    now_ms: int,
    limits: Limits = AS_SET,
    held_partitions: Sequence[HeldPartition] = (),
    backups_only: bool = False,
) -> TopicsPrune:
    """Plan a prune of a source's topics (all, or those named or matching), and of `backups`, which it deletes
    whole. Writes nothing; `now_ms` in ms.

    `protected_ids`: ids of the backups whose restore points no topic's retention may cut. `held_partitions`:
    what unfinished restores read. `backups_only`: delete nothing of topics.

    Topics that the newest backup does not hold, and earlier topics of the same name, are only deleted when
    they are named. Raises NotFound (no such topic; no restorable backup, and none to delete).
    """
    newest = {(row["scope"], row["epoch"]) for row in questions.rows("newest_topics", source=source)}
    histories = [_history(row, newest) for row in questions.rows("prune_topics", source=source)]
    if not histories and not backups:
        require_known(questions, source)
        raise NotFound(
            f"There is no restorable backup of {source}.", hint="`lakebackup list` shows what there is."
        )
    if backups_only:
        histories = []
    scopes = {history.scope for history in histories}
    selected = set(patterns.select(names, expressions, scopes)) if names or expressions else scopes
    rules, skipped = [], []
    for history in histories:
        if history.scope not in selected:
            continue
        topic_rule = rule(history, limits, now_ms=now_ms)
        if not history.present and history.scope not in names:
            skipped.append((history.scope, "the newest backup does not hold it: name it to prune it"))
        elif topic_rule.idle:
            skipped.append((history.scope, _keeps_all(history)))
        else:
            rules.append(topic_rule)
    questions = with_leaving(questions, backups)
    going = _with_totals(questions, backups)
    questions = questions.with_rows("rules", relation(Rule, rules)).with_rows(
        "held", relation(HeldPartition, held_partitions)
    )
    needed = _needed(questions, source, protected_ids)
    rows = questions.with_rows("needed", needed).rows("prune_cuts", source=source)
    cuts = tuple(
        Cut(
            source=source,
            scope=row["scope"],
            epoch=row["epoch"],
            region=row["region"],
            low_position=max(row["time_floor"], row["size_floor"]),
            time_floor=row["time_floor"],
            generation=row["compacted_to"] if row["superseded"] else 0,
        )
        for row in rows
        if row["superseded"] or max(row["time_floor"], row["size_floor"]) > row["least"]
    )
    questions = _with_cuts(questions, cuts)
    portions = tuple(Portion(**row) for row in questions.rows("prune_totals", source=source)) if cuts else ()
    touched = {(p.scope, p.epoch, p.region) for p in portions}
    return TopicsPrune(
        source=source,
        backups=going,
        rules=tuple(rules),
        cuts=tuple(c for c in cuts if (c.scope, c.epoch, c.region) in touched),
        portions=portions,
        held_partitions=tuple(h for h in held_partitions if h.scope in selected),
        skipped_topics=tuple(skipped),
        files=sum(row["files"] for row in rows) + sum(b.files for b in going),
        bytes=sum(row["bytes"] for row in rows) + sum(b.bytes for b in going),
        bound=tuple((row["scope"], row["region"]) for row in rows if row["bound"]),
    )


def plan_expired(questions: Questions, source: str, backups: Sequence[Leaving]) -> SnapshotsPrune:
    """Plan the deletion of backups of snapshots, and of the objects in which no backup that stays has a file.

    Writes nothing.
    """
    questions = with_leaving(questions, backups)
    expired = tuple(Expired(**row) for row in questions.rows("prune_expired_totals", source=source))
    return SnapshotsPrune(
        source=source,
        backups=tuple(backups),
        files=sum(table.of_files for table in expired),
        bytes=sum(table.of_bytes for table in expired),
        expired=expired,
    )


def plan_chains(questions: Questions, source: str, backups: Sequence[Leaving]) -> QueuesPrune:
    """Plan the deletion of backups of an engine's queues, with their messages and the engine's own files.

    Writes nothing. Raises NotFound (the engine has no backup).
    """
    if not questions.rows("source_kinds", source=source):
        raise no_source(questions, source)
    questions = with_leaving(questions, backups)
    going = _with_totals(questions, backups)
    return QueuesPrune(
        source=source,
        backups=going,
        files=sum(b.files for b in going),
        bytes=sum(b.bytes for b in going),
        released=snapshots_released(questions, source),
    )


def with_leaving(questions: Q, backups: Iterable[Leaving]) -> Q:
    """The catalog with the relation `leaving`: the backups that are deleted whole, and why."""
    return questions.with_rows("leaving", leaving((backup.backup_id, backup.reason) for backup in backups))


def _with_cuts(questions: Q, cuts: Iterable[Cut]) -> Q:
    """The catalog with the relation `cuts`."""
    return questions.with_rows("cuts", relation(Cut, cuts))


def plan_imported(source: str, backups: Sequence[Leaving]) -> ImportedPrune:
    """Report what is obsolete of a source that another program backs up. Nothing is deleted here."""
    files, size = sum(b.files for b in backups), sum(b.bytes for b in backups)
    return ImportedPrune(source=source, backups=tuple(backups), files=files, bytes=size)


def snapshots_released(questions: Questions, source: str) -> tuple[str, ...]:
    """The backups of an engine's snapshots that are kept for its fulls, and on which only fulls in the
    relation `leaving` depend."""
    return tuple(row["backup_id"] for row in questions.rows("prune_queue_snapshots", source=source))


def require_proof(
    broken: Iterable[dict[str, Any]] = (),
    unchained: Iterable[dict[str, Any]] = (),
    unresolved: Iterable[dict[str, Any]] = (),
) -> None:
    """Raise Refused when a restore point would lose what it needs. The arguments are the rows of prune_proof,
    of prune_chains, and of prune_resolved or prune_queue_proof."""
    lines = [
        f"  backup {row['needed_by']} needs backup {row['backup_id']}, which would go" for row in unchained
    ]
    lines += [
        f"  topic {row['scope']}, partition {row['region']}, backup number {row['number']}: "
        f"needs {row['needed']} files, would have {row['remaining']}"
        for row in broken
    ]
    lines += [
        f"  backup number {row['number']} of {row['source']} has {row['files']} files in objects that would "
        f"be gone, the first {row['path']}"
        for row in unresolved
    ]
    if lines:
        raise Refused(
            "Restore points would not find what they need after this prune:\n" + "\n".join(lines),
            hint="Nothing was deleted. Please report it: a defect, or a catalog that contradicts itself.",
        )


def _with_totals(questions: Questions, backups: Sequence[Leaving]) -> tuple[Leaving, ...]:
    """The backups with what they still hold. `questions` has them as the relation `leaving`."""
    totals = {row["backup_id"]: row for row in questions.rows("prune_backup_totals")} if backups else {}
    return tuple(
        replace(b, files=totals[b.backup_id]["files"], bytes=totals[b.backup_id]["bytes"])
        if b.backup_id in totals
        else b
        for b in backups
    )


def _history(row: dict[str, Any], newest: set[tuple[str, str]]) -> History:
    return History(
        source=row["source"],
        scope=row["scope"],
        epoch=row["epoch"],
        base=row["base"],
        link=row["link"],
        generation=row["generation"],
        settings=topic_settings.in_force(row["settings"]),
        covered_to=row["covers_to"],
        present=(row["scope"], row["epoch"]) in newest,
    )


def _keeps_all(history: History) -> str:
    if "cleanup.policy" in history.settings:  # some value of it is always in force
        return "its settings keep everything"
    return "its backups do not say how long its brokers keep records; the next backup does"


def leaving(backups: Iterable[tuple[str, str]]) -> pa.Table:
    """The relation of the backups to delete whole: their ids and the reasons."""
    rows = [{"backup_id": backup_id, "reason": reason} for backup_id, reason in backups]
    return pa.Table.from_pylist(rows, leaving_schema())


def _needed(questions: Questions, source: str, protected_ids: Sequence[str]) -> pa.Table:
    """The relation of what restore points of some backups need of each partition."""
    if not protected_ids:
        return needed_schema().empty_table()
    rows = questions.with_rows("kept", backup_ids(protected_ids)).rows("prune_needed", source=source)
    return pa.Table.from_pylist(rows, needed_schema())


def needed_schema() -> pa.Schema:
    """The columns of the relation `needed`: those of the query prune_needed."""
    names = [pa.field(name, pa.string()) for name in ("scope", "epoch", "region")]
    return pa.schema([*names, pa.field("generation", pa.int64()), pa.field("position", pa.int64())])


def backup_ids(ids: Iterable[str]) -> pa.Table:
    """A relation of backups, by their ids alone."""
    return pa.table({"backup_id": pa.array(list(ids), pa.string())})


def leaving_schema() -> pa.Schema:
    """The columns of the relation `leaving`."""
    return pa.schema([pa.field("backup_id", pa.string()), pa.field("reason", pa.string())])


#: The rules by which a policy keeps a number of backups; each is the column `keep_<rule>` of its row.
KEEP_RULES = ("last", "hourly", "daily", "weekly", "monthly", "yearly", "differentials")


def in_force_schema() -> pa.Schema:
    """The columns of the relation that replaces the view `policies` when backups are judged."""
    return pa.schema(
        [
            pa.field("source", pa.string()),
            pa.field("window_days", pa.int32()),
            pa.field("window_from_ts", pa.int64()),
            pa.field("redundancy", pa.int32()),
            pa.field("min_redundancy", pa.int32()),
            *(pa.field(f"keep_{rule}", pa.int32()) for rule in KEEP_RULES),
            pa.field("time_zone", pa.string()),
        ]
    )


def columns_of(kind: type[Rule | HeldPartition | Cut]) -> pa.Schema:
    """The columns of the relation whose rows are objects of a class: rules, held or cuts."""
    types = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "int | None": pa.int64()}
    return pa.schema([pa.field(f.name, types[str(f.type)]) for f in fields(kind)])


def relation(kind: type[Rule | HeldPartition | Cut], rows: Iterable[Rule | HeldPartition | Cut]) -> pa.Table:
    """Rows of one of these classes as the relation that queries read."""
    schema = columns_of(kind)
    return pa.Table.from_pylist([{n: getattr(row, n) for n in schema.names} for row in rows], schema)
