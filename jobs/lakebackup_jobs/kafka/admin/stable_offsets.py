"""How far many partitions are written, and how far readers of committed records see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, TopicPartition
from tenacity import (
    Retrying,
    retry,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
)

from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.kafka.admin.cluster import LATEST, Cluster, Passing
from lakebackup_jobs.kafka.admin.committed import Ends

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakebackup_jobs.kafka.admin.committed import Place

#: A commit is answered before its markers are in the partitions. They follow in milliseconds; after the loss
#: of a broker it takes longer.
MARKERS_S = 60.0


class Watermarks(Cluster):
    """The ends of partitions. Methods raise EnvironmentProblem as those of `Cluster`."""

    def ends(self, places: Collection[Place]) -> dict[Place, Ends]:
        """Both ends of every place, `stable` first: what lies before it was written when `high` was asked."""
        stable = self._ask(places, IsolationLevel.READ_COMMITTED)
        high = self._ask(places, IsolationLevel.READ_UNCOMMITTED)
        return {place: Ends(stable[place], high[place]) for place in places}

    def seen(self, wanted: Mapping[Place, int], seconds: float = MARKERS_S) -> dict[Place, Ends]:
        """Wait until readers of committed records see each place up to its offset, at most so long.

        Returns the ends as they are then: whoever must know compares.
        """
        waiting = Retrying(
            retry=retry_if_result(lambda found: any(found[p].stable < end for p, end in wanted.items())),
            wait=wait_exponential(multiplier=0.001, max=0.1),
            stop=stop_after_delay(seconds),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else {},
        )
        return waiting(self.ends, wanted.keys())

    # Right after a leader was lost, brokers point at each other for a moment.
    @retry(
        retry=retry_if_exception_type(Passing), wait=wait_fixed(0.1), stop=stop_after_delay(10), reraise=True
    )
    def _ask(self, places: Collection[Place], level: IsolationLevel) -> dict[Place, int]:
        if not places:
            return {}
        found = self._all(
            self._admin.list_offsets(
                {TopicPartition(topic, partition): LATEST for topic, partition in places},
                isolation_level=level,
                request_timeout=cluster.ADMIN_TIMEOUT_S,
            ),
            "read the partitions' ends",
        )
        return {(tp.topic, tp.partition): answer.offset for tp, answer in found.items()}
