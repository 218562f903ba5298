"""Where restores go: topics, a Delta table, a folder, or a file of records.

A target gets what it needs from the content of a restore (rows, files, or records to produce), and knows what
it holds already. Restores of an engine's queues have no target; they use `targets.topics`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from lakebackup.errors import Refused
from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
from lakebackup.plan.topics.restore import RestorePlan


@dataclass(frozen=True, slots=True)
class RestoredSpan:
    """What a target holds: everything of `source` that was committed in `(from_ts, to_ts]`.

    `start_ts`: the ts from which the last restore brought changes. `filters`, `first_key` and `beyond_key`
    select the tables and keys.
    """

    source: str
    from_ts: int
    to_ts: int
    start_ts: int
    filters: Sequence[str] = ()
    first_key: str | None = None
    beyond_key: str | None = None

    @classmethod
    def after_restore(
        cls, earlier: RestoredSpan | None, plan: LogRestorePlan, request: LogRestoreRequest
    ) -> RestoredSpan:
        """What a target that held `earlier` holds after a restore by `plan`."""
        start_ts = 0 if request.on_full else plan.start_ts
        return cls(
            source=plan.source,
            from_ts=earlier.from_ts if earlier else start_ts,
            to_ts=plan.end_ts,
            start_ts=start_ts,
            filters=list(request.filters),
            first_key=request.first_key,
            beyond_key=request.beyond_key,
        )

    def text(self) -> str:
        """The JSON text that is recorded in the target."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> RestoredSpan | None:
        """The inverse of `text`; None when the text is anything else."""
        try:
            fields = json.loads(text)
            return cls(**fields) if isinstance(fields, dict) else None
        except (ValueError, TypeError):
            return None


def require_same(restored: RestoredSpan, request: LogRestoreRequest) -> None:
    """Raise Refused unless a restore is of the same source, tables and keys as what the target holds."""
    current_text = _selection_text(restored.source, restored.filters, restored.first_key, restored.beyond_key)
    requested_text = _selection_text(request.name, request.filters, request.first_key, request.beyond_key)
    if current_text != requested_text:
        raise Refused(
            f"The target holds {current_text}, and this would bring {requested_text}.",
            hint="Restore into another place, or continue with the same source, -f and keys.",
        )


def is_done(restored: RestoredSpan | None, goal: RestoredSpan, *, from_full: bool = False) -> bool:
    """Whether a target holds already what a restore would bring (`goal`). Raises Refused when the restore
    cannot continue what the target holds (`restored`). `from_full`: the restore starts from another table,
    and continues nothing."""
    if restored is None:
        return False
    same_start = restored.from_ts == goal.from_ts or not from_full
    if same_start and (restored.start_ts, restored.to_ts) == (goal.start_ts, goal.to_ts):
        return True
    if restored.to_ts == goal.start_ts and not from_full:
        return False
    raise Refused(
        f"The target holds what {restored.source} had in ({restored.from_ts}, {restored.to_ts}], and this "
        f"would bring ({goal.start_ts}, {goal.to_ts}].",
        hint="Give a place that is new."
        if from_full
        else f"Continue with --startts {restored.to_ts}, or restore into another place.",
    )


def _selection_text(
    source: str, filters: Sequence[str], first_key: str | None, beyond_key: str | None
) -> str:
    parts = [source, *(f"-f {text!r}" for text in filters)]
    if first_key or beyond_key:
        parts.append(f"keys {first_key or ''}..{beyond_key or ''}")
    return " ".join(parts)


class Target:
    """Where a restore writes to. `name` is its canonical name, however a user writes it.

    Nothing is written before `prepare`, or before `write` where a restore does not prepare the target.
    """

    name: str
    #: Whether this process writes the target, without Spark.
    is_local: ClassVar[bool] = False

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        """For a dry run: what would be created, and the reason for a refusal (`refused_because`)."""
        raise NotImplementedError

    def restored_span(self) -> RestoredSpan | None:
        """What earlier restores of a log brought; None: the target is empty. Raises Refused when it holds
        anything else."""
        raise NotImplementedError

    def missing_rights(self, plan: LogRestorePlan) -> Sequence[str]:
        """The rights that a restore of a log into this target lacks, each with its resource."""
        return []

    def target_ids(self, plan: RestorePlan) -> dict[str, Any]:
        """The ids of what the records go into; empty where names are all there is.

        For Kafka: `cluster` is the cluster's id, and `topics` maps a source topic to the id of its target
        topic, if that exists.
        """
        return {}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        """Prepare the target. Raises Refused when it cannot take the restore. When the restore is resumed,
        the target holds what the interrupted run left."""

    def require_unclaimed(self, goal: RestoredSpan) -> None:
        """Raise Refused when the target holds a part of another restore of a log than the one after which it
        holds `goal`. Called before the restore is recorded."""

    def write(self, content: Any) -> Any:
        """Write a Content into the target, and return its summary. An interrupted attempt is completed or
        repeated; no record is there twice."""
        raise NotImplementedError

    def finish(self, plan: RestorePlan) -> Sequence[str]:
        """Give the target its final state. Returns notes for the user."""
        return []

    def unfinished(self) -> str:
        """A note for the user about the target after a restore that did not finish; empty: nothing."""
        return ""

    def forget(self) -> Sequence[str]:
        """Delete what is only needed to resume the restore. Call it once the restore is recorded as complete;
        before that, an interrupted run would start over. Returns notes on what could not be deleted."""
        return []


def full_path(path: str) -> str:
    """The path of a target as an absolute path; URIs stay as they are."""
    return path if "://" in path else str(Path(path).absolute())
