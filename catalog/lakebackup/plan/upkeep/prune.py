"""What a prune deletes, as a value: backups whole, a cut for each partition, and what that comes to.

Which files those are is no list: SQL derives them from the backups and the cuts, on the engine that deletes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import NotFound, Refused
from lakebackup.rows.backups import Floor
from lakebackup.rules import patterns, topic_settings
from lakebackup.rules.kinds import no_source, require_known
from lakebackup.rules.retention import AS_SET, History, Limits, Rule, rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa


DAY_MS = 86_400_000


class Questions(Protocol):
    """What planning needs of an engine: rows of statements that give few, and relations of given rows."""

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]: ...

    def give(self, relation: str, rows: pa.Table) -> None: ...


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that an unfinished restore reads."""

    scope: str
    epoch: str
    region: str
    restore_id: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A backup that goes whole, why, and what it still holds; `end_ts` in the source's unit."""

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
    """One partition: files that end at or before `low_position` go, and those of generations before
    `generation`; `time_floor` is how much of that is because of time."""

    source: str
    scope: str
    epoch: str
    region: str
    low_position: int
    time_floor: int
    generation: int


@dataclass(frozen=True, slots=True)
class Portion:
    """What goes of one partition for one reason; `max_ts` is the time of the newest record in it."""

    scope: str
    epoch: str
    region: str
    reason: str
    files: int
    bytes: int
    max_ts: int


@dataclass(frozen=True, slots=True)
class Expired:
    """What goes of a table of snapshots (empty: packs of files of several), of how much. `idle` files are
    needed no more and stay, since their packs hold others that are; None where their sizes are not known."""

    scope: str
    files: int
    bytes: int
    of_files: int
    of_bytes: int
    idle: int
    idle_bytes: int | None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What goes of a source: `backups` whole, each before those that it depends on, and what the kinds of
    sources have besides. `files` and `bytes` are those that were looked at."""

    source: str
    backups: tuple[Leaving, ...]
    files: int
    bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not self.backups

    @property
    def gone(self) -> Sequence[Portion | Leaving | Expired]:
        """All that goes, each with its files and bytes."""
        return self.backups

    @property
    def gone_files(self) -> int:
        return sum(one.files for one in self.gone)

    @property
    def gone_bytes(self) -> int:
        return sum(one.bytes for one in self.gone)

    def give(self, questions: Questions) -> None:
        """Give an engine what the statements of this plan read: the relations `leaving` and `cuts`."""
        questions.give("leaving", leaving((b.backup_id, b.reason) for b in self.backups))
        questions.give("cuts", relation(Cut, ()))

    def removals(self, prune_id: str, at: int) -> tuple[str, dict[str, Any]]:
        """The statement, with its parameters, that gives the rows of the files that go; `at` in us."""
        return "prune_removals", {"prune_id": prune_id, "at": at}

    def require_proof(self, questions: Questions) -> None:
        """Refused when a restore point that stays would lose what it needs. The engine has the plan's
        relations, and the files that go as the relation `doomed`."""
        raise NotImplementedError

    def floors(self, prune_id: str, at: int) -> list[Floor]:  # noqa: ARG002
        """The rows that say from where on the partitions can be restored afterwards; `at` in us."""
        return []


@dataclass(frozen=True, slots=True)
class TopicsPrune(PrunePlan):
    """Of topics, also of archives. `files` and `bytes`: what the topics with a rule hold now, and the backups
    that go. `left_alone`: topics without a rule, and why; `bound`: (topic, partition) of which kept restore
    points need more than the topic's retention keeps."""

    rules: tuple[Rule, ...]
    cuts: tuple[Cut, ...]
    portions: tuple[Portion, ...]
    held: tuple[Held, ...]
    left_alone: tuple[tuple[str, str], ...]
    bound: tuple[tuple[str, str], ...]

    @property
    def is_empty(self) -> bool:
        """Whether neither a backup nor a part of a partition goes."""
        return not self.backups and not self.cuts

    @property
    def gone(self) -> Sequence[Portion | Leaving | Expired]:
        """Parts of partitions, and backups."""
        return (*self.portions, *self.backups)

    def give(self, questions: Questions) -> None:
        """The relation `leaving`, and the cuts of this plan."""
        PrunePlan.give(self, questions)
        questions.give("cuts", relation(Cut, self.cuts))

    def require_proof(self, questions: Questions) -> None:
        """Every partition keeps its files, and every chain its backups."""
        require_proof(
            questions.rows("prune_proof", source=self.source),
            questions.rows("prune_chains", source=self.source),
        )

    def floors(self, prune_id: str, at: int) -> list[Floor]:
        """A row for each cut."""
        reasons: dict[tuple[str, str, str], set[str]] = {}
        for p in self.portions:
            reasons.setdefault((p.scope, p.epoch, p.region), set()).add(p.reason)
        return [
            Floor(
                prune_id=prune_id,
                at=at,
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
    """Of snapshots: backups hold nothing of their own, `expired` is what goes with them."""

    expired: tuple[Expired, ...]

    @property
    def gone(self) -> Sequence[Portion | Leaving | Expired]:
        """Objects of tables, and backups."""
        return (*self.backups, *self.expired)

    def removals(self, prune_id: str, at: int) -> tuple[str, dict[str, Any]]:
        """Objects of which no backup that stays has a file."""
        return "prune_expired", {"source": self.source, "prune_id": prune_id, "at": at}

    def require_proof(self, questions: Questions) -> None:
        """Every backup that stays has its objects."""
        require_proof(unresolved=questions.rows("prune_resolved", source=self.source))


@dataclass(frozen=True, slots=True)
class ImportedPrune(PrunePlan):
    """What is obsolete of a source that another program backs up: a report, nothing is deleted here."""


@dataclass(frozen=True, slots=True)
class QueuesPrune(PrunePlan):
    """Of an engine: `released` are the backups of its snapshots on which no full depends afterwards."""

    released: tuple[str, ...]

    def require_proof(self, questions: Questions) -> None:
        """Every chain keeps its backups, and every full its snapshot."""
        require_proof(
            unchained=questions.rows("prune_chains", source=self.source),
            unresolved=questions.rows("prune_queue_proof", source=self.source),
        )


def window_of(source: str, *, now: int, days: int, policy: Mapping[str, Any] | None = None) -> pa.Table:
    """A relation that stands in for the view `policies`: a recovery window in place of a policy's window and
    redundancy; its other rules are promises of their own and hold whatever the window. `now` in ms."""
    import pyarrow as pa

    row = {**(policy or {"min_redundancy": 1}), "source": source}
    row |= {"window_days": days, "window_from_ts": now - days * DAY_MS, "redundancy": None}
    return pa.Table.from_pylist([row], in_force_schema())


def plan_prune(
    questions: Questions,
    source: str,
    *,
    backups: Sequence[Leaving] = (),
    kept: Sequence[str] = (),
    names: Sequence[str] = (),
    expressions: Sequence[str] = (),
    now: int,
    limits: Limits = AS_SET,
    held: Sequence[Held] = (),
    backups_only: bool = False,
) -> TopicsPrune:
    """What can go of a source's topics (all, or those named or matching), beside `backups`, which go whole.
    Writes nothing; `now` in ms. `kept`: ids of the backups whose restore points no topic's retention may cut.
    `backups_only`: nothing of topics goes.

    Topics that the newest backup does not hold, and earlier topics of a name, only go when they are named.
    Raises NotFound (no such topic, neither a restorable backup nor one that goes).
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
    known = {history.scope for history in histories}
    chosen = set(patterns.select(names, expressions, known)) if names or expressions else known
    rules, alone = [], []
    for history in histories:
        if history.scope not in chosen:
            continue
        made = rule(history, limits, now=now)
        if not history.present and history.scope not in names:
            alone.append((history.scope, "the newest backup does not hold it: name it to prune it"))
        elif made.idle:
            alone.append((history.scope, _keeps_all(history)))
        else:
            rules.append(made)
    questions.give("leaving", leaving((b.backup_id, b.reason) for b in backups))
    going = _weighed(questions, backups)
    questions.give("rules", relation(Rule, rules))
    questions.give("held", relation(Held, held))
    questions.give("kept", backup_ids(kept))
    found = questions.rows("prune_cuts")
    cuts = tuple(
        Cut(
            source=row["source"],
            scope=row["scope"],
            epoch=row["epoch"],
            region=row["region"],
            low_position=max(row["time_floor"], row["size_floor"]),
            time_floor=row["time_floor"],
            generation=row["compacted_to"] if row["superseded"] else 0,
        )
        for row in found
        if row["superseded"] or max(row["time_floor"], row["size_floor"]) > row["least"]
    )
    questions.give("cuts", relation(Cut, cuts))
    portions = tuple(Portion(**row) for row in questions.rows("prune_totals")) if cuts else ()
    touched = {(p.scope, p.epoch, p.region) for p in portions}
    return TopicsPrune(
        source=source,
        backups=going,
        rules=tuple(rules),
        cuts=tuple(c for c in cuts if (c.scope, c.epoch, c.region) in touched),
        portions=portions,
        held=tuple(h for h in held if h.scope in chosen),
        left_alone=tuple(alone),
        files=sum(row["files"] for row in found) + sum(b.files for b in going),
        bytes=sum(row["bytes"] for row in found) + sum(b.bytes for b in going),
        bound=tuple((row["scope"], row["region"]) for row in found if row["bound"]),
    )


def plan_expired(questions: Questions, source: str, backups: Sequence[Leaving]) -> SnapshotsPrune:
    """What goes with some backups of a source of snapshots: the objects in which none that stays has a file.

    Writes nothing.
    """
    questions.give("leaving", leaving((b.backup_id, b.reason) for b in backups))
    expired = tuple(Expired(**row) for row in questions.rows("prune_expired_totals", source=source))
    return SnapshotsPrune(
        source=source,
        backups=tuple(backups),
        files=sum(one.of_files for one in expired),
        bytes=sum(one.of_bytes for one in expired),
        expired=expired,
    )


def plan_chains(questions: Questions, source: str, backups: Sequence[Leaving]) -> QueuesPrune:
    """What goes with some backups of an engine's queues: their messages and the engine's own files.

    Writes nothing. Raises NotFound (it has no backup).
    """
    if not questions.rows("source_kinds", source=source):
        raise no_source(questions, source)
    questions.give("leaving", leaving((b.backup_id, b.reason) for b in backups))
    going = _weighed(questions, backups)
    return QueuesPrune(
        source=source,
        backups=going,
        files=sum(b.files for b in going),
        bytes=sum(b.bytes for b in going),
        released=snapshots_released(questions, source),
    )


def plan_imported(source: str, backups: Sequence[Leaving]) -> ImportedPrune:
    """What is obsolete of a source that another program backs up: a report, nothing is deleted here."""
    files, size = sum(b.files for b in backups), sum(b.bytes for b in backups)
    return ImportedPrune(source=source, backups=tuple(backups), files=files, bytes=size)


def snapshots_released(questions: Questions, source: str) -> tuple[str, ...]:
    """Backups of the snapshots of an engine that are held for its fulls, and on which none stands but those
    in the relation `leaving`."""
    return tuple(row["backup_id"] for row in questions.rows("prune_queue_snapshots", source=source))


def require_proof(
    broken: Iterable[dict[str, Any]] = (),
    unchained: Iterable[dict[str, Any]] = (),
    unresolved: Iterable[dict[str, Any]] = (),
) -> None:
    """Refused when some restore point would lose what it needs: rows of prune_proof, of prune_chains, and of
    prune_resolved or prune_queue_proof."""
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


def _weighed(questions: Questions, backups: Sequence[Leaving]) -> tuple[Leaving, ...]:
    """With what they still hold; `questions` has them as the relation `leaving`."""
    held_by = {row["backup_id"]: row for row in questions.rows("prune_backup_totals")} if backups else {}
    return tuple(
        replace(b, files=held_by[b.backup_id]["files"], bytes=held_by[b.backup_id]["bytes"])
        if b.backup_id in held_by
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
    if "cleanup.policy" in history.settings:  # it is always in force, from wherever
        return "its settings keep everything"
    return "its backups do not say how long its brokers keep records; the next backup does"


def leaving(backups: Iterable[tuple[str, str]]) -> pa.Table:
    """The relation of the backups that go whole: their ids, and why."""
    import pyarrow as pa

    rows = [{"backup_id": backup_id, "reason": reason} for backup_id, reason in backups]
    return pa.Table.from_pylist(rows, leaving_schema())


def backup_ids(ids: Iterable[str]) -> pa.Table:
    """A relation of backups, by their ids alone."""
    import pyarrow as pa

    return pa.table({"backup_id": pa.array(list(ids), pa.string())})


def leaving_schema() -> pa.Schema:
    """The columns of the relation `leaving`."""
    import pyarrow as pa

    return pa.schema([pa.field("backup_id", pa.string()), pa.field("reason", pa.string())])


#: What a policy keeps by number, beside its window and its redundancy: `keep_<rule>` of its row.
KEEP_RULES = ("last", "hourly", "daily", "weekly", "monthly", "yearly", "differentials")


def in_force_schema() -> pa.Schema:
    """The columns of the relation that stands in for the view `policies` when backups are judged."""
    import pyarrow as pa

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


def columns_of(kind: type[Rule | Held | Cut]) -> pa.Schema:
    """The columns of the relation whose rows a class holds: rules, held, cuts."""
    import pyarrow as pa

    types = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "int | None": pa.int64()}
    return pa.schema([pa.field(f.name, types[str(f.type)]) for f in fields(kind)])


def relation(kind: type[Rule | Held | Cut], rows: Iterable[Rule | Held | Cut]) -> pa.Table:
    """Rows of one of these classes as the relation that queries read."""
    import pyarrow as pa

    schema = columns_of(kind)
    return pa.Table.from_pylist([{n: getattr(row, n) for n in schema.names} for row in rows], schema)
