"""Whether a restore into an engine's queues is in progress, or did not finish: no backup continues that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebackup.errors import Busy, Refused
from lakebackup.plan.queues.history import last_ended
from lakebackup.store.lease import is_held
from lakebackup_jobs.queues.restore import restore_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebackup.plan.partitions import TopicState
    from lakebackup.plan.queues.history import History
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader


def require_restored(
    storage: Storage,
    reader: CatalogReader,
    source: str,
    histories: Iterable[History],
    topics: Sequence[TopicState],
) -> None:
    """Raise Busy while a restore of a source writes into these topics, Refused when one was left half done.

    One that was left before the newest full, or before another restore was done, does not matter.
    """
    names = {topic.epoch: topic.scope for topic in topics}
    ended = last_ended(histories, topics)
    for row in reader.rows("prune_restores", source=source):
        restore_id = row["restore_id"]
        made = restore_state.read(storage, restore_id)
        hit = next((names[epoch] for epoch in made.epochs.values() if epoch in names), None) if made else None
        if hit is None:
            continue
        digest = json.loads(row["detail"] or "{}").get("digest")
        if digest is not None and is_held(storage, f"restore-{digest}"):
            raise Busy(
                f"Restore {restore_id} is writing into topic {hit}.",
                hint="Wait until it is done, and run again.",
            )
        if row["at"] >= ended:
            raise Refused(
                f"Restore {restore_id} started to write into topic {hit} and did not finish: what a backup "
                "would read there is of two histories.",
                hint="Nothing was written. Run its command again to finish that restore; if it is given up, "
                "take a snapshot of the engine and a new full of it with --mode full.",
            )
