"""Where what a change feed held is restored to: a Delta table, a folder, or topics. One module a target."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.logs.flush import shown_ts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
    from lakebackup_jobs.logs.restore.splits import LogShares


@dataclass(frozen=True, slots=True)
class Held:
    """What a target holds: everything of `source` that was committed in `(from_ts, to_ts]`.

    `start_ts`: from where on the last restore into it brought changes. `filters`, `first_key`, `beyond_key`:
    of which tables and keys.
    """

    source: str
    from_ts: int
    to_ts: int
    start_ts: int
    filters: Sequence[str] = ()
    first_key: str | None = None
    beyond_key: str | None = None

    @classmethod
    def after(cls, before: Held | None, plan: LogRestorePlan, request: LogRestoreRequest) -> Held:
        """What a target holds after a restore, when that stands on `before`."""
        start_ts = 0 if request.on_full else plan.start_ts
        return cls(
            source=plan.source,
            from_ts=before.from_ts if before else start_ts,
            to_ts=plan.end_ts,
            start_ts=start_ts,
            filters=list(request.filters),
            first_key=request.first_key,
            beyond_key=request.beyond_key,
        )

    def text(self) -> str:
        """As it is written down in the target."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Held | None:
        """The inverse of `text`; None when that is something else."""
        try:
            found = json.loads(text)
            return cls(**found) if isinstance(found, dict) else None
        except (ValueError, TypeError):
            return None


class LogTarget(Protocol):
    """A place for what a feed held. Nothing is written before `write`."""

    place: str

    def held(self) -> Held | None:
        """What earlier restores brought; None: it is empty. Raises Refused when it is something else's."""
        ...

    def write(
        self,
        spark: SparkSession,
        shares: LogShares,
        plan: LogRestorePlan,
        full: DataFrame | None,
        before: Held | None,
        after: Held,
    ) -> Mapping[str, Any]:
        """Bring the span, upon what the target holds; counts of what was written, `entries` among them.

        When it was cut off and is done again, every change counts once.
        """
        ...


def require_same(before: Held, request: LogRestoreRequest) -> None:
    """Refused when a restore is of another source, other tables or keys than what it goes on from."""
    had = _asked(before.source, before.filters, before.first_key, before.beyond_key)
    now = _asked(request.name, request.filters, request.first_key, request.beyond_key)
    if had != now:
        raise Refused(
            f"The target holds {had}, and this would bring {now}.",
            hint="Restore into another place, or go on with the same source, -f and keys.",
        )


def is_done(before: Held | None, after: Held, *, anew: bool = False) -> bool:
    """Whether a target holds already what a restore would bring. Refused when it cannot go on there; `anew`:
    it stands on something else, and goes on nowhere."""
    if before is None:
        return False
    whole = before.from_ts == after.from_ts or not anew
    if whole and (before.start_ts, before.to_ts) == (after.start_ts, after.to_ts):
        return True
    if before.to_ts == after.start_ts and not anew:
        return False
    raise Refused(
        f"The target holds what {before.source} had in ({before.from_ts}, {before.to_ts}], and this would "
        f"bring ({after.start_ts}, {after.to_ts}].",
        hint="Give a place that is new."
        if anew
        else f"Go on with --startts {before.to_ts}, or restore into another place.",
    )


def _asked(source: str, filters: Sequence[str], first_key: str | None, beyond_key: str | None) -> str:
    parts = [source, *(f"-f {text!r}" for text in filters)]
    if first_key or beyond_key:
        parts.append(f"keys {first_key or ''}..{beyond_key or ''}")
    return " ".join(parts)


def open_target(request: LogRestoreRequest) -> LogTarget:
    """The target that `request.target` names: delta:PATH, dir:PATH or kafka://HOST:PORT[?prefix=TEXT]."""
    scheme, separator, rest = request.target.partition(":")
    if separator and rest and scheme == "delta":
        from lakebackup_jobs.logs.restore.targets.delta import DeltaTarget

        return DeltaTarget(rest)
    if separator and rest and scheme == "dir":
        from lakebackup_jobs.logs.restore.targets.folder import FolderTarget

        return FolderTarget(rest)
    if separator and rest and scheme == "kafka":
        from lakebackup_jobs.logs.restore.targets.kafka import KafkaTarget

        return KafkaTarget(request, rest)
    raise UsageProblem(
        f"{request.target!r} is no place that a log can be restored to.",
        hint="Use --to delta:PATH, --to dir:PATH or --to kafka://HOST:PORT[?prefix=TEXT].",
    )


def span_text(plan: LogRestorePlan) -> str:
    """The span of a plan for people."""
    return f"({shown_ts(plan.start_ts, plan.domain)}, {shown_ts(plan.end_ts, plan.domain)}]"
