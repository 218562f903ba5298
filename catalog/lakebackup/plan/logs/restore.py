"""Plans the restore of a change feed's log: which files to read. The catalog's SQL selects them.

Planning writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.logs.events import Domain
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.plan.logs.flush import physical_ms, shown_ts
from lakebackup.requests import RunRequest
from lakebackup.rows.base import CHANGES, pick
from lakebackup.rules.kinds import require_kind_of
from lakebackup.sql_engine import EngineChoice
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader

_MAX_SHOWN = 10
# How many fulls a restore considers, the newest first.
_FULLS = 100
#: The value of `whole_from` and `covered_from` for a table that its task never captured.
NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogRestoreRequest(RunRequest):
    """The options of a restore. `start_ts` and `end_ts` are in the feed's own unit, `to_ms` in ms since 1970
    UTC.

    `first_key` and `beyond_key` (lower hex) limit it to keys in `[first_key, beyond_key)`. With `on_full` it
    restores on top of the newest full, with `upon` on top of the table at this path, which an earlier restore
    created. `kafka` may hold secrets. `keys_file` is the path of the encryption keys of log files.
    """

    name: str
    target: str = ""
    start_ts: int | None = None
    end_ts: int | None = None
    to_ms: int | None = None
    filters: tuple[str, ...] = ()
    first_key: str | None = None
    beyond_key: str | None = None
    on_full: bool = False
    upon: str | None = None
    checksum: bool = True
    allow_gaps: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)
    keys_file: str | None = None
    engine: EngineChoice = "auto"


@dataclass(frozen=True, slots=True)
class Full:
    """A full that a restore is based on. `destination` is the id of the destination that holds its Delta
    table, `bytes` the size of its files, `note` the gap over which it was made, if any."""

    backup_id: str
    end_ts: int
    destination: str
    bytes: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table and the name it has at the end of the span."""

    table_id: int
    db: str
    name: str


@dataclass(frozen=True, slots=True)
class Amount:
    """Totals of the chosen files of one column family; sizes in bytes."""

    files: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class LogRestorePlan:
    """The restore of what was committed in `(start_ts, end_ts]`, on top of `full` if set.

    `file`: the rows of the files to read. Values come first, then the writes that may truncate a whole table,
    then the other writes.

    `tables`: the restored tables that have a name. `only`: the ids of the restored tables; None: all but
    those in `without`, such as dropped ones. `changed`: the tables that were dropped, truncated or renamed
    within the span. `begin_ts`: the least start ts of a value in the files of `values`; None: there are none.
    `whole_tables`: the number of files with writes that may truncate a whole table. `encrypted`: the number
    of encrypted files. `obstacles`: missing or damaged files. `gaps`: what was never captured.
    """

    source: str
    domain: Domain
    start_ts: int
    end_ts: int
    full: Full | None
    tables: tuple[NamedTable, ...]
    only: tuple[int, ...] | None
    without: tuple[int, ...]
    changed: tuple[int, ...]
    writes: Amount
    values: Amount
    begin_ts: int | None
    whole_tables: int
    encrypted: int
    parameters: Mapping[str, Any]
    file: PlanFile = field(compare=False)
    obstacles: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def to_ms(self) -> int:
        """The instant of the end, in ms since 1970 UTC."""
        return physical_ms(self.end_ts, self.domain)

    @property
    def bytes(self) -> int:
        return self.writes.bytes + self.values.bytes

    @property
    def entries(self) -> int:
        return self.writes.entries + self.values.entries

    @property
    def raw_bytes(self) -> int:
        return self.writes.raw_bytes + self.values.raw_bytes


def last_ts(ms: int, domain: str) -> int:
    """Return the greatest ts within a millisecond. In the domain `tso` it has all lower bits set."""
    return ((ms + 1) << 18) - 1 if domain == "tso" else ms


def plan_restore(
    request: LogRestoreRequest,
    reader: CatalogReader,
    *,
    whole_from: int | None = None,
    base: tuple[int, Sequence[str]] | None = None,
    leave_uncovered: bool = False,
) -> LogRestorePlan:
    """Plan a restore. Writes nothing.

    `whole_from` is the ts from which the log must have every change of each table, by default the start of
    the span; on a full it is 0, the beginning. `base` tells up to which ts the target was restored, and by
    which filters; it is None if the target holds nothing. With `leave_uncovered`, tables that lack earlier
    changes are left out with a note; otherwise they raise Refused.

    Raises NotFound (no such log, no table by the filters), Refused (a span that the log does not cover, a
    table that the base lacks), UsageProblem.
    """
    log = _Log(request, reader)
    end_ts, end_notes = log.end()
    full = log.full(end_ts) if request.on_full else None
    start_ts = log.start(end_ts, full)
    if whole_from is None:
        whole_from = 0 if request.on_full else start_ts
    continued = base[1] if base and base[0] == start_ts else None
    tables = log.tables(start_ts, end_ts, whole_from, continued, leave_uncovered=leave_uncovered)
    span: dict[str, Any] = {"source": log.source, "start_ts": start_ts, "end_ts": end_ts}
    parameters = {
        **span,
        "tables": None if tables.only is None else [str(table) for table in tables.only],
        "without": [str(table) for table in tables.without],
        "first_key": request.first_key,
        "beyond_key": request.beyond_key,
    }
    file = reader.plan_file("log_restore_files", **parameters)
    files = reader.with_rows("selected", file)
    totals = {row["cf"]: row for row in files.rows("log_restore_totals")}
    write = totals.get("write", {})
    return LogRestorePlan(
        **span,
        domain=log.domain,
        full=full,
        tables=tables.named_tables,
        only=tables.only,
        without=tables.without,
        changed=tables.changed,
        writes=_amount(write),
        values=_amount(totals.get("default", {})),
        begin_ts=write.get("begin_ts"),
        whole_tables=write.get("whole_tables", 0),
        encrypted=sum(row["encrypted"] for row in totals.values()),
        parameters=parameters,
        file=file,
        obstacles=tuple(
            f"{row['path']} was {row['outcome']} when it was last checked"
            for row in files.rows("selected_damage")
        ),
        gaps=(
            *([f"full {full.backup_id} was {full.note}"] if full and full.note else []),
            *(_gap(row, log.domain) for row in reader.rows("log_restore_gaps", **span)),
        ),
        notes=(*end_notes, *tables.notes, *log.nameless(span)),
    )


def require_restorable(plan: LogRestorePlan, *, allow_gaps: bool) -> None:
    """Raise Refused for missing or damaged files, and for gaps unless `allow_gaps`."""
    problems = [*plan.obstacles, *([] if allow_gaps else plan.gaps)]
    if not problems:
        return
    raise Refused(
        f"The restore would not be a correct copy of {plan.source}:" + _some(problems, "", "\n  "),
        hint="Choose a span without these files; `lakebackup verify` shows all damage."
        if plan.obstacles
        else "Choose a span before or after the gap, or give --allow-gaps (the result records the gaps).",
    )


def gap_note(plan: LogRestorePlan) -> str | None:
    """Return the note on gaps that a full records for the restores based on it; None if there are none."""
    if not plan.gaps:
        return None
    suffix = f", and {len(plan.gaps) - 1} more" if len(plan.gaps) > 1 else ""
    return f"made over a gap: {plan.gaps[0]}{suffix}"


class _Tables(NamedTuple):
    """The fields of LogRestorePlan with these names (`named_tables`: `tables`), and notes."""

    named_tables: tuple[NamedTable, ...]
    only: tuple[int, ...] | None
    without: tuple[int, ...]
    changed: tuple[int, ...]
    notes: tuple[str, ...]


class _Log:
    """The log of a request: the spans that it covers, and its tables."""

    def __init__(self, request: LogRestoreRequest, reader: CatalogReader) -> None:
        self.request, self.reader, self.source = request, reader, request.name
        self.spans = reader.rows("log_restore_coverage", source=self.source)
        if not self.spans:
            require_kind_of(reader, self.source, CHANGES)
            raise NotFound(
                f"The catalog holds no log of {self.source} that can be restored.",
                hint="`lakebackup log status` shows the log tasks and their checkpoints.",
            )
        self.domain: Domain = self.spans[-1]["ts_domain"]
        self.filter = self.filter_of(request.filters)

    def filter_of(self, rules: Sequence[str]) -> TableFilter:
        return TableFilter(rules, has_schemas=self.domain == "ms")

    def text(self, ts: int) -> str:
        return shown_ts(ts, self.domain)

    def end(self) -> tuple[int, tuple[str, ...]]:
        """Return the end ts, and a note if the log ends within the requested millisecond."""
        request = self.request
        if request.end_ts is not None:
            return request.end_ts, ()
        if request.to_ms is None:
            return int(self.spans[-1]["to_ts"]), ()
        end_ts = last_ts(request.to_ms, self.domain)
        for span in self.spans:
            if span["to_ts"] < end_ts and physical_ms(span["to_ts"], self.domain) == request.to_ms:
                text = f"the log ends within that millisecond: restored up to {span['to_ts']}"
                return int(span["to_ts"]), (text,)
        return end_ts, ()

    def full(self, end_ts: int) -> Full | None:
        """Return the newest undamaged full that lacks no table, and from which the log reaches `end_ts`.

        None if there is none, and the log covers everything from 0 on. Raises Refused if it does not.
        """
        rows = self.reader.rows("log_fulls", source=self.source, to_ts=end_ts)[:_FULLS]
        reasons: list[str] = []
        for row in rows:
            reaches_end = row["end_ts"] == end_ts or self.covers(row["end_ts"], end_ts)
            if not reaches_end or row["damaged"]:
                continue
            lacking = self._dropped_and_restored(row["end_ts"], end_ts)
            if not lacking:
                return pick(Full, row)
            reasons.append(f"full {row['backup_id']} lacks {_some(lacking)}, which was dropped then")
        if self.covers(0, end_ts):
            return None
        reasons += [
            f"full {row['backup_id']} is damaged ({row['damaged']})" for row in rows if row["damaged"]
        ]
        raise Refused(
            f"{self.text(end_ts)} of {self.source} cannot be restored: there is no undamaged full before it "
            f"from which the log continues.{''.join(f' The {text}.' for text in reasons[:_MAX_SHOWN])} "
            + self._nearest(),
            hint="`lakebackup log restore` restores what was committed in a span; `log merge "
            "--read-snapshot-storage TABLE --startts TS` applies the log to a table with the data at TS.",
        )

    def start(self, end_ts: int, full: Full | None) -> int:
        """Return the start ts: the end of the full, the requested start, or the start of the log's span with
        the end.

        Raises UsageProblem for an empty span, and Refused for one that the log does not cover.
        """
        request = self.request
        if full and full.end_ts == end_ts:
            return end_ts
        inside = [span for span in self.spans if span["from_ts"] <= end_ts <= span["to_ts"]]
        if full or request.on_full:
            start_ts = full.end_ts if full else 0
        elif request.start_ts is not None:
            start_ts = request.start_ts
        else:
            start_ts = int(inside[-1]["from_ts"]) if inside else 0
        if start_ts >= end_ts and not request.on_full and inside:
            raise UsageProblem(
                f"Nothing lies between {self.text(start_ts)} and {self.text(end_ts)}.",
                hint=f"Give an end after the start. {self._nearest()}",
            )
        if not self.covers(start_ts, end_ts):
            raise Refused(
                f"The log of {self.source} does not cover ({self.text(start_ts)}, {self.text(end_ts)}]. "
                + self._nearest(),
                hint="Choose a span within these times. Later changes are available after the next flush.",
            )
        return start_ts

    def covers(self, start_ts: int, end_ts: int) -> bool:
        """Return whether one span of the log covers all of `(start_ts, end_ts]`."""
        return any(span["from_ts"] <= start_ts and end_ts <= span["to_ts"] for span in self.spans)

    def _nearest(self) -> str:
        spans = [
            f"after {self.text(span['from_ts'])} up to {self.text(span['to_ts'])}"
            for span in self.spans[-_MAX_SHOWN:]
        ]
        return f"It covers times {'; '.join(spans)}."

    def tables(
        self,
        start_ts: int,
        end_ts: int,
        whole_from: int,
        base_filters: Sequence[str] | None,
        *,
        leave_uncovered: bool,
    ) -> _Tables:
        """Choose the tables that are restored. A table is left out if it does not exist at the end, or,
        without filters, if it is captured only later. A table is uncovered if its capture started after it
        was created or after `whole_from`, whichever is later.
        """
        request, matches = self.request, self._matches
        named_tables, without, changed, uncovered = [], [], [], []
        start_rows, rows = self._names(start_ts), self._names(end_ts, start_ts)
        if base_filters is not None:
            base = self.filter_of(base_filters)
            self._refuse_missing_in_base(base, start_rows, rows, any_name=not base_filters)
        if not rows and self.domain == "ms":
            self._refuse_before_start()
        for table, row in rows.items():
            if row["changed"] and (matches(row) or matches(start_rows.get(table, row))):
                changed.append(table)
            if row["gone"]:
                without.append(table)
                continue
            if not matches(row):
                continue
            if row["whole_from"] > end_ts and not request.filters:  # not captured by then
                without.append(table)
                continue
            needed_from = whole_from if row["born_ts"] is None else max(whole_from, row["born_ts"] - 1)
            if row["whole_from"] > needed_from:
                uncovered.append(row)
                if leave_uncovered:
                    without.append(table)
                    continue
            named_tables.append(NamedTable(table, row["db"], row["name"]))
        texts = [f"{_full_name(row)} ({_captured(row['whole_from'])})" for row in uncovered]
        if texts and not leave_uncovered:
            raise Refused(
                f"The log of {self.source} does not hold these tables from the start of the span, since "
                f"their capture started later: {_some(texts)}.",
                hint="Restore them with a later --startts, or leave them out: "
                + " ".join(f"-f '!{_full_name(row)}'" for row in uncovered[:3]),
            )
        if request.filters and not named_tables:
            raise NotFound(
                f"No table of {self.source} matches {', '.join(request.filters)} at that time.",
                hint="A rule is like shop.* or *.orders. The view log_tables has all names.",
            )
        return _Tables(
            named_tables=tuple(named_tables),
            only=tuple(table.table_id for table in named_tables) if request.filters else None,
            without=tuple(without),
            changed=tuple(changed),
            notes=tuple(f"left out, since the log lacks its first changes: {text}" for text in texts),
        )

    def _matches(self, row: Mapping[str, Any]) -> bool:
        return self.filter.matches(row["db"], row["name"])

    def _names(self, end_ts: int, start_ts: int | None = None) -> dict[int, dict[str, Any]]:
        """Return the row of log_restore_tables of each table, by its id: its name at `end_ts`, and whether it
        changed since `start_ts`."""
        start_ts = end_ts if start_ts is None else start_ts
        rows = self.reader.rows("log_restore_tables", source=self.source, start_ts=start_ts, end_ts=end_ts)
        return {int(row["table_id"]): row for row in rows}

    def nameless(self, span: Mapping[str, Any]) -> list[str]:
        """Return a note on tables without a name if there are filters, since no filter can match these
        tables."""
        if not self.request.filters:
            return []
        (row,) = self.reader.rows("log_restore_nameless", **span)
        return [f"left out: {row['tables']} tables without a name at that time"] if row["tables"] else []

    def _dropped_and_restored(self, start_ts: int, end_ts: int) -> list[str]:
        """Return the chosen tables that were dropped at `start_ts`, and exist again with their old rows at
        `end_ts`."""
        rows = self._names(end_ts)
        return [
            _full_name(rows[table])
            for table, start_row in self._names(start_ts).items()
            if start_row["gone"] and not rows[table]["gone"] and self._matches(rows[table])
        ]

    def _refuse_before_start(self) -> None:
        """Raise Refused: before its first snapshot, a feed with the database's clock has no data."""
        later = [row["born_ts"] for row in self._names(NEVER - 1).values() if row["born_ts"]]
        if later:
            raise Refused(
                f"The log of {self.source} starts at {self.text(min(later))}.",
                hint="Choose a later end.",
            )

    def _refuse_missing_in_base(
        self,
        base: TableFilter,
        start_rows: Mapping[int, Mapping[str, Any]],
        rows: Mapping[int, Mapping[str, Any]],
        *,
        any_name: bool,
    ) -> None:
        """Raise Refused when the base lacks rows of a chosen table: at the start it was dropped, or its name
        did not match the base's filters, or (unless `any_name`) it had no name."""
        texts = []
        for table, row in rows.items():
            name, start_row = _full_name(row), start_rows.get(table)
            if row["gone"] or not self._matches(row):
                continue
            if start_row is None:
                if row["unnamed"] and not any_name:
                    texts.append(f"{name} had no name")
            elif start_row["gone"]:
                texts.append(f"{name} was dropped")
            elif not base.matches(start_row["db"], start_row["name"]):
                texts.append(f"{_full_name(start_row)} is {name} by now")
        if texts:
            raise Refused(
                f"The base of this restore lacks tables that this one includes: {_some(texts)}.",
                hint="Restore into another target, from the start of the log.",
            )


def _full_name(row: Mapping[str, Any]) -> str:
    return f"{row['db']}.{row['name']}"


def _captured(whole_from: int) -> str:
    return "never captured" if whole_from == NEVER else f"captured after {whole_from}"


def _gap(row: Mapping[str, Any], domain: str) -> str:
    end_text = "on" if row["to_position"] is None else f"to {row['to_position']}"
    lost = f"offsets from {row['from_position']} {end_text} were deleted before they were captured"
    if row["reason"] == "skipped":
        lost = f"offset {row['from_position']} was left out by `log resume --skip`"
    return (
        f"topic {row['scope']}, partition {row['region']}: {lost} (nearest restorable time before: "
        f"{shown_ts(row['from_ts'], domain)}, after: {shown_ts(row['to_ts'], domain)})"
    )


def _amount(row: Mapping[str, Any]) -> Amount:
    return Amount(**{name: row.get(name, 0) for name in Amount.__slots__})


def _some(texts: Iterable[str], separator: str = ", ", prefix: str = "") -> str:
    all_texts = list(texts)
    joined = separator.join(f"{prefix}{text}" for text in all_texts[:_MAX_SHOWN])
    return joined + (
        f"{separator}{prefix}and {len(all_texts) - _MAX_SHOWN} more" if len(all_texts) > _MAX_SHOWN else ""
    )
