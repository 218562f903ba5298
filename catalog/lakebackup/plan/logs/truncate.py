"""Plans where to cut the log of a change feed, so that what can be restored of it begins there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import pyarrow as pa

from lakebackup.errors import NotFound, Refused
from lakebackup.formats.logs.events import Domain
from lakebackup.plan.logs.flush import shown_ts, ts_at
from lakebackup.plan.upkeep.prune import Q, Questions, Statement, leaving
from lakebackup.rows.backups import Floor

#: The reason for which a full is deleted: it is older than the one that restores begin with.
OLDER = "until"
#: The scope, epoch and region in rows about a complete log.
OF_THE_LOG = "-"


@dataclass(frozen=True, slots=True)
class Full:
    """A full. `held`: it is on hold; `damaged`: a damaged file of it; `note`: the gap it was made over."""

    backup_id: str
    end_ts: int
    held: bool
    damaged: str | None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """What a policy and holds keep of a log. `window_from_ts`: the beginning of the recovery window, ms since
    1970 UTC; `held_ts`: the end of the earliest flush on hold, in the feed's domain."""

    window_from_ts: int | None = None
    redundancy: int | None = None
    min_redundancy: int | None = None
    held_ts: int | None = None


@dataclass(frozen=True, slots=True)
class LogCut:
    """A planned cut. It deletes the log files that end before `cut`, and the fulls `leaving`.

    Each ts is in the feed's `domain`. The log begins at `floor` now, and at `cut` afterwards. `full`: the
    full from which states as of an instant are restored then; None: only ranges can be restored. `note`: the
    gap that the full was made over.
    """

    source: str
    domain: Domain
    cut: int
    floor: int
    full: str | None
    leaving: tuple[str, ...]
    note: str | None = None

    @property
    def whole_backups(self) -> tuple[tuple[str, str], ...]:
        """The id of each full that is deleted, and the reason."""
        return tuple((backup_id, OLDER) for backup_id in self.leaving)


@dataclass(frozen=True, slots=True)
class TruncatePlan:
    """What a truncate deletes. `totals`: rows of log_truncate_totals. `metas`: rows of removals without
    the prune, of the `.meta` objects of flushes that keep no log file."""

    cut: LogCut
    totals: tuple[Mapping[str, Any], ...]
    metas: pa.Table

    @property
    def source(self) -> str:
        return self.cut.source

    @property
    def is_empty(self) -> bool:
        """Whether the log begins where it began, and no object is deleted."""
        return not (self.totals or self.metas or self.cut.leaving) and self.cut.cut == self.cut.floor

    @property
    def removals(self) -> Statement:
        """The query of the objects to delete."""
        return Statement("log_truncate_files", {"source": self.source, "cut": self.cut.cut})

    @property
    def whole_backups(self) -> tuple[tuple[str, str], ...]:
        """The id of each full that is deleted, and the reason."""
        return self.cut.whole_backups

    def with_relations(self, questions: Q) -> Q:
        """The catalog with the relations `leaving` and `metas`, which `removals` and the proof read."""
        return questions.with_rows("leaving", leaving(self.whole_backups)).with_rows("metas", self.metas)

    def floors(self, prune_id: str, time_us: int) -> list[Floor]:
        """The row that records from where on the log can be restored."""
        floor = Floor(
            prune_id=prune_id,
            at=time_us,
            source=self.source,
            scope=OF_THE_LOG,
            epoch=OF_THE_LOG,
            region=OF_THE_LOG,
            low_position=self.cut.cut,
            reason=OLDER,
        )
        return [floor]

    def require_proof(self, questions: Questions) -> None:
        """Raise Refused when something that stays restorable would lose a file. The catalog has the objects
        to delete as the relation `doomed`."""
        questions = self.with_relations(questions)
        require_proof(questions.rows("log_truncate_proof", source=self.source, cut=self.cut.cut))


def cut_of(
    source: str,
    state: Mapping[str, Any] | None,
    fulls: Iterable[Full],
    *,
    until: int,
    ranges_only: bool = False,
    retention: Retention = Retention(),
) -> LogCut:
    """Plan a cut at the newest undamaged full at or before `until`. `state`: a row of log_truncate_state.

    A full restores the instants after it only with the log that follows it, so the log is cut at a full.
    Older fulls then lack that log, and are deleted unless they are on hold. With `ranges_only` the cut is at
    `until`, and no full is deleted. Raises NotFound (no log), Refused (no full to cut at; no checkpoint;
    `until` is after the checkpoint, where values may have been captured whose transactions have yet to
    commit; a policy or a hold keeps what would be deleted).
    """
    if state is None:
        raise NotFound(
            f"The catalog holds no log of {source}.", hint="`lakebackup log status` shows the tasks."
        )
    domain: Domain = state["ts_domain"]
    if state["start_ts"] is None:
        raise Refused(
            f"The log of {source} has no checkpoint yet, so that nothing of it can be restored.",
            hint="Wait until `lakebackup log status` shows one.",
        )
    floor = max(state["start_ts"], state["floor_ts"] or 0)
    if until > state["end_ts"]:
        raise Refused(
            f"The log of {source} is whole up to {shown_ts(state['end_ts'], domain)}, which is before "
            f"{shown_ts(until, domain)}.",
            hint="Give a time up to that, its checkpoint.",
        )
    ordered = sorted(fulls, key=lambda full: full.end_ts, reverse=True)
    base_full = None
    if not ranges_only:
        base_full = next((full for full in ordered if full.end_ts <= until and not full.damaged), None)
        if base_full is None:
            raise Refused(
                f"{source} has no whole full at or before {shown_ts(until, domain)}: without one, states "
                "from before the log then begins could not be had again.",
                hint=f"Make one with `lakebackup log snapshot {quote(source)} --endts {until}`, or keep only "
                "what was committed from then on, with --ranges-only.",
            )
    cut = base_full.end_ts if base_full else until
    _require_policy(source, domain, cut, floor, ordered, retention)
    cut = max(cut, floor)
    if base_full is None:
        return LogCut(source, domain, cut, floor, None, ())
    going = tuple(full.backup_id for full in ordered if full.end_ts < base_full.end_ts and not full.held)
    return LogCut(source, domain, cut, floor, base_full.backup_id, going, base_full.note)


def _require_policy(
    source: str, domain: Domain, cut: int, floor: int, fulls: Sequence[Full], retention: Retention
) -> None:
    """Raise Refused when a cut deletes what a policy or a hold keeps. `fulls`: the newest first."""
    for limit, keeper in _limits(
        domain, floor, [full.end_ts for full in fulls if not full.damaged], retention
    ):
        if cut > max(limit, floor):
            raise Refused(
                f"A cut at {shown_ts(cut, domain)} would take what {keeper} keeps of {source}.",
                hint="Nothing was deleted. "
                + (
                    f"Give --endts {limit} or an earlier time, or change that first."
                    if limit > floor
                    else "Make a full with `lakebackup log snapshot`, or change that first."
                ),
            )


def _limits(
    domain: Domain, floor: int, ends: Sequence[int], retention: Retention
) -> Iterator[tuple[int, str]]:
    """Up to where each promise allows a cut, and its name. `ends`: of undamaged fulls, the newest first."""

    def last_end_by(ts: int) -> int:
        return next((end for end in ends if end <= ts), floor)

    def nth_newest_end(count: int) -> int:
        return ends[count - 1] if count <= len(ends) else floor

    limits = []
    if retention.window_from_ts is not None:
        limits.append(last_end_by(ts_at(retention.window_from_ts, domain)))
    if retention.redundancy is not None:
        limits.append(nth_newest_end(retention.redundancy))
    if limits:
        # With both a window and a redundancy, the one that keeps more decides.
        yield min(limits), "its policy"
    if retention.min_redundancy is not None:
        yield nth_newest_end(retention.min_redundancy), "the minimum redundancy of its policy"
    if retention.held_ts is not None:
        yield last_end_by(retention.held_ts), "a hold"


def require_proof(broken: Iterable[Mapping[str, Any]]) -> None:
    """Raise Refused when something that stays restorable would lose a file. `broken`: rows of
    log_truncate_proof."""
    lines = [f"  {row['path']} ({row['cf'] or 'full'}, up to {row['max_ts']})" for row in broken]
    if lines:
        raise Refused(
            "What stays restorable would miss these files:\n" + "\n".join(lines),
            hint="Nothing was deleted. Please report it: a defect, or a catalog that contradicts itself.",
        )
