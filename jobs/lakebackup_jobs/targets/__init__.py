"""Where restores go: topics, a Delta table, a folder, or a file of records.

A target asks the content of a restore for what it takes (rows, files, or records to produce), and knows what
it holds already. What brings an engine's queues back uses `targets.topics`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from lakebackup.errors import Refused, UsageProblem
from lakebackup.storage.nesting import require_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.requests import Request
    from lakebackup_jobs.targets.delta import DeltaTarget

Written = TypeVar("Written", covariant=True)


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
        """What a target that held `before` holds after a restore."""
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
        """As it is recorded in the target."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Held | None:
        """The inverse of `text`; None when that is something else."""
        try:
            found = json.loads(text)
            return cls(**found) if isinstance(found, dict) else None
        except (ValueError, TypeError):
            return None


def require_same(before: Held, request: LogRestoreRequest) -> None:
    """Refused when a restore is of another source, other tables or keys than what it continues from."""
    had = _asked(before.source, before.filters, before.first_key, before.beyond_key)
    now = _asked(request.name, request.filters, request.first_key, request.beyond_key)
    if had != now:
        raise Refused(
            f"The target holds {had}, and this would bring {now}.",
            hint="Restore into another place, or continue with the same source, -f and keys.",
        )


def is_done(before: Held | None, after: Held, *, alone: bool = False) -> bool:
    """Whether a target holds already what a restore would bring. Refused when it cannot be continued there;
    `alone`: the restore starts from another table, and continues nothing."""
    if before is None:
        return False
    whole = before.from_ts == after.from_ts or not alone
    if whole and (before.start_ts, before.to_ts) == (after.start_ts, after.to_ts):
        return True
    if before.to_ts == after.start_ts and not alone:
        return False
    raise Refused(
        f"The target holds what {before.source} had in ({before.from_ts}, {before.to_ts}], and this would "
        f"bring ({after.start_ts}, {after.to_ts}].",
        hint="Give a place that is new."
        if alone
        else f"Continue with --startts {before.to_ts}, or restore into another place.",
    )


def _asked(source: str, filters: Sequence[str], first_key: str | None, beyond_key: str | None) -> str:
    parts = [source, *(f"-f {text!r}" for text in filters)]
    if first_key or beyond_key:
        parts.append(f"keys {first_key or ''}..{beyond_key or ''}")
    return " ".join(parts)


class Content(Protocol[Written]):
    """What a restore brings; `Written` is its summary, the same from every target.

    `spark`: the session that does it. `before`: what the target holds and the restore continues from, None:
    nothing. `after`: what the target then records that it holds, None: only the catalog records it. `commit`:
    Spark's options of the commit to a table. `gone`: tables of which nothing is left at the end.
    """

    @property
    def spark(self) -> SparkSession: ...
    @property
    def before(self) -> Held | None: ...
    @property
    def after(self) -> Held | None: ...
    @property
    def commit(self) -> Mapping[str, Any]: ...
    @property
    def gone(self) -> Sequence[int]: ...

    def rows(self) -> DataFrame | None:
        """All of it, as the rows of a table; None: there is none."""
        ...

    def create(self, path: str) -> bool:
        """Create the table at a path with it, without SQL; whether it is so little that this was done."""
        ...

    def onto(self, held: DataFrame) -> DataFrame:
        """What makes the rows that are `held` those after the restore; see the statement log_continue."""
        ...

    def in_table(self, table: DeltaTarget) -> Written:
        """The summary, once the table has been written."""
        ...

    def write_files(self, path: str) -> Written:
        """Write it as files below a folder, in the place of those of an attempt that was cut off."""
        ...


class Target:
    """A place that a restore writes to; `place` is its name, the same however a person writes it.

    Nothing is written before `prepare`, or `write` where the target is not prepared.
    """

    place: str
    #: Whether this process writes it, without Spark.
    is_local: ClassVar[bool] = False

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        """For a dry run: what would be created, and what is in the way (`refused_because`)."""
        raise NotImplementedError

    def held(self) -> Held | None:
        """What earlier restores of a log brought; None: it is empty. Raises Refused when anything else is
        there."""
        raise NotImplementedError

    def missing_rights(self, plan: LogRestorePlan) -> Sequence[str]:
        """The rights that a restore of a log lacks here, each with its resource."""
        return []

    def into(self, plan: RestorePlan) -> dict[str, Any]:
        """Which things the records go into, where they have an identity beside their name.

        For Kafka: `cluster`, and `topics`: source topic -> id of its target topic, of those that are there.
        """
        return {}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        """Refuse a target that is not fit, and make it ready. A resumed restore finds what it left itself."""

    def write(self, content: Any) -> Any:
        """Bring a Content, and return its summary. An attempt that was cut off is completed or repeated:
        nothing is there twice."""
        raise NotImplementedError

    def finish(self, plan: RestorePlan) -> Sequence[str]:
        """Put things in their final state; returns what the person must know."""
        return []

    def unfinished(self) -> str:
        """What a person must know of the target after a restore that did not finish; empty: nothing."""
        return ""

    def forget(self) -> Sequence[str]:
        """Drop what lets a restore be resumed; before it is on record as complete, it would start over.
        Returns what could not be dropped."""
        return []


def open_target(
    request: Request, text: str, kafka: Callable[[str], Target], *, append: bool = False
) -> Target:
    """The target that `text` names: delta:PATH, dir:PATH or kafka://…, the rest of which `kafka` takes.

    `append`: rows may be added to a table that is there. Raises UsageProblem (a path in a
    repository too).
    """
    scheme, _, rest = text.partition(":")
    if rest and scheme in ("delta", "dir"):
        require_outside(request, rest)
    if rest and scheme == "delta":
        from lakebackup_jobs.targets.delta import DeltaTarget

        return DeltaTarget(rest, append=append)
    if rest and scheme == "dir":
        from lakebackup_jobs.targets.folder import FolderTarget

        return FolderTarget(rest)
    if rest and scheme == "kafka":
        return kafka(rest.removeprefix("//"))
    raise UsageProblem(
        f"{text!r} is no place to restore to.",
        hint="Name kafka://HOST:PORT, delta:PATH or dir:PATH.",
    )


def full_path(path: str) -> str:
    """A path or URI of a target, absolute."""
    return path if "://" in path else str(Path(path).absolute())
