"""Where the log of a change feed may be cut, so that what can be restored of it begins there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.logs.flush import shown_ts, ts_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakebackup.formats.logs.events import Domain

#: Why a full goes: it is older than the one that restores begin with.
OLDER = "until"


@dataclass(frozen=True, slots=True)
class Full:
    """A full. `damaged`: a file of it that is not whole; `note`: which gap it was made over."""

    backup_id: str
    end_ts: int
    held: bool
    damaged: str | None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a policy and holds keep of a log. `window_from_ts`: the beginning of the recovery window, ms since
    1970 UTC; `held_ts`: the end of the earliest flush on hold, in the feed's domain."""

    window_from_ts: int | None = None
    redundancy: int | None = None
    min_redundancy: int | None = None
    held_ts: int | None = None


@dataclass(frozen=True, slots=True)
class LogCut:
    """Log files that end before `cut` go, and the fulls `leaving`; ts in the feed's `domain`.

    Afterwards the log begins at `cut`, before it at `floor`: for states as of an instant by the full `full`,
    or (None) for ranges alone. `note`: which gap the full was made over.
    """

    source: str
    domain: Domain
    cut: int
    floor: int
    full: str | None
    leaving: tuple[str, ...]
    note: str | None = None


def cut_of(
    source: str,
    state: Mapping[str, Any] | None,
    fulls: Iterable[Full],
    *,
    until: int,
    ranges_only: bool = False,
    kept: Kept = Kept(),
) -> LogCut:
    """From a row of log_truncate_state and the fulls: at the newest whole full at or before `until`.

    A full restores the instants after it only with the log behind it, so the log is cut where one is; older
    fulls have lost theirs then, and go unless they are held. With `ranges_only` the cut is at `until`, and no
    full goes. Raises NotFound (no log), Refused (no full to cut at; no checkpoint; `until` is after it:
    values may have been captured there whose transactions have yet to commit; a policy or a hold keeps what
    would go).
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
    found = None
    if not ranges_only:
        found = next((full for full in ordered if full.end_ts <= until and not full.damaged), None)
        if found is None:
            raise Refused(
                f"{source} has no whole full at or before {shown_ts(until, domain)}: without one, states "
                "from before the log then begins could not be had again.",
                hint=f"Make one with `lakebackup log snapshot {quote(source)} --endts {until}`, or keep only "
                "what was committed from then on, with --ranges-only.",
            )
    cut = found.end_ts if found else until
    _require_policy(source, domain, cut, floor, ordered, kept)
    cut = max(cut, floor)
    if found is None:
        return LogCut(source, domain, cut, floor, None, ())
    going = tuple(full.backup_id for full in ordered if full.end_ts < found.end_ts and not full.held)
    return LogCut(source, domain, cut, floor, found.backup_id, going, found.note)


def _require_policy(
    source: str, domain: Domain, cut: int, floor: int, fulls: Sequence[Full], kept: Kept
) -> None:
    """Refused when a cut takes what a policy or a hold keeps. `fulls`: the newest first."""
    for limit, why in _limits(domain, floor, [full.end_ts for full in fulls if not full.damaged], kept):
        if cut > max(limit, floor):
            raise Refused(
                f"A cut at {shown_ts(cut, domain)} would take what {why} keeps of {source}.",
                hint="Nothing was deleted. "
                + (
                    f"Give --endts {limit} or an earlier time, or change that first."
                    if limit > floor
                    else "Make a full with `lakebackup log snapshot`, or change that first."
                ),
            )


def _limits(domain: Domain, floor: int, ends: Sequence[int], kept: Kept) -> Iterator[tuple[int, str]]:
    """Up to where the log may be cut, for each promise; `ends`: of whole fulls, the newest first."""

    def before(ts: int) -> int:
        return next((end for end in ends if end <= ts), floor)

    def newest(count: int) -> int:
        return ends[count - 1] if count <= len(ends) else floor

    promised = []
    if kept.window_from_ts is not None:
        promised.append(before(ts_at(kept.window_from_ts, domain)))
    if kept.redundancy is not None:
        promised.append(newest(kept.redundancy))
    if promised:
        # With a window and a redundancy, what one of them gives up stays for the other.
        yield min(promised), "its policy"
    if kept.min_redundancy is not None:
        yield newest(kept.min_redundancy), "the minimum redundancy of its policy"
    if kept.held_ts is not None:
        yield before(kept.held_ts), "a hold"


def require_proof(broken: Iterable[Mapping[str, Any]]) -> None:
    """Refused when something that stays restorable would lose a file: rows of log_truncate_proof."""
    lines = [f"  {row['path']} ({row['cf'] or 'full'}, up to {row['max_ts']})" for row in broken]
    if lines:
        raise Refused(
            "What stays restorable would miss these files:\n" + "\n".join(lines),
            hint="Nothing was deleted. Please report it: a defect, or a catalog that contradicts itself.",
        )
