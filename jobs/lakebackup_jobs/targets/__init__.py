"""Where a restore goes: another topic, a Delta table, or a folder. One module a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.topics.request import RestoreRequest
    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.roots import Roots
    from lakebackup_jobs.lifecycle.region_outcome import RegionOutcome
    from lakebackup_jobs.lifecycle.splits import Shares


class Target(Protocol):
    """A place records are restored to. Nothing is written before `prepare`."""

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        """What the dry run says of the target: what would be created, what stands in the way."""
        ...

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        """Refuse a target that is not fit, and make it ready."""
        ...

    def replay(
        self,
        spark: SparkSession,
        shares: Shares,
        plan: RestorePlan,
        restore_id: str,
        roots: Roots,
    ) -> Sequence[RegionOutcome]:
        """Verify the files in `shares` and bring their records back.

        `roots` maps a destination's id to the URI of its root.
        """
        ...

    def into(self, plan: RestorePlan) -> dict[str, Any]:
        """Which things the records go into, where they have an identity beside their name.

        For Kafka: `cluster`, and `topics`: source topic -> id of its target topic, of those that are there.
        """
        ...

    def finish(self, plan: RestorePlan) -> Sequence[str]:
        """Put things in their final state; returns what the person must know."""
        ...

    def forget(self) -> None:
        """Drop what lets a restore go on; before it is on record as complete, it would start over."""
        ...


def open_target(request: RestoreRequest, reader: CatalogReader) -> Target:
    """The target that `request.target` names: kafka://host:port, delta:PATH or dir:PATH."""
    scheme, separator, rest = request.target.partition(":")
    asked = {
        "--continue": request.continued,
        "--repartition": request.repartition,
        "--partitions": request.partitions,
        "--groups": request.groups,
    }
    idle = [flag for flag, value in asked.items() if value]
    if idle and scheme in ("delta", "dir"):
        raise UsageProblem(f"{', '.join(idle)}: only where the records go into topics (--to kafka://…).")
    if separator and rest:
        if scheme == "kafka":
            from lakebackup_jobs.targets.kafka import KafkaTarget

            return KafkaTarget(request, rest.removeprefix("//"), reader)
        if scheme == "delta":
            from lakebackup_jobs.targets.delta import DeltaTarget

            return DeltaTarget(request, rest)
        if scheme == "dir":
            from lakebackup_jobs.targets.folder import FolderTarget

            return FolderTarget(request, rest)
    raise UsageProblem(
        f"{request.target!r} is no place records can be restored to.",
        hint="Use --to kafka://host:port, --to delta:PATH or --to dir:PATH.",
    )
