"""Where a restore began in its target partitions, so that it notices when brokers forget its progress.

    restores/<restore_id>/plan/bases/<producer>/<attempt>.json    of all partitions of a producer
    restores/<restore_id>/plan/<topic id>/<partition>/base        of one partition, from an earlier version

Brokers keep the offsets of a group without members for a week (offsets.retention.minutes).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from uuid import uuid4

from lakebackup.errors import NotFound, Refused
from lakebackup.storage import Storage


class Bases:
    """The ends of target partitions before the first transactions of a producer. Topics go by their ids.

    `folder`: the restore's. A repaired transaction has the same base as before.
    """

    def __init__(self, storage: Storage, folder: str, producer: str) -> None:
        self._storage = storage
        self._plan_folder = f"{folder}plan/"
        self._attempts = f"{self._plan_folder}bases/{producer}/"
        self._path = f"{self._attempts}{uuid4().hex}.json"
        self._new: dict[str, int] = {}

    def record(self, bases: Mapping[tuple[str, str], int]) -> None:
        """Record the bases of partitions whose first transaction was committed."""
        self._new.update({"/".join(partition): base for partition, base in bases.items()})
        if bases:
            self._storage.put(self._path, json.dumps(self._new).encode())

    def of(self, topic_id: str, region: str) -> Collection[int]:
        """Return the bases that earlier attempts recorded for a partition: none, if none has committed."""
        recorded = self._recorded.get(f"{topic_id}/{region}", set())
        if topic_id in self._topics_of_earlier_version:
            return recorded | self._read_earlier_version(topic_id, region)
        return recorded

    @cached_property
    def _recorded(self) -> Mapping[str, set[int]]:
        recorded: defaultdict[str, set[int]] = defaultdict(set)
        for stat in self._storage.list(self._attempts):
            for partition, base in json.loads(self._storage.get(stat.path)).items():
                recorded[partition].add(base)
        return recorded

    @cached_property
    def _topics_of_earlier_version(self) -> Collection[str]:
        return set(self._storage.folders(self._plan_folder))

    def _read_earlier_version(self, topic_id: str, region: str) -> set[int]:
        try:
            return {int(self._storage.get(f"{self._plan_folder}{topic_id}/{region}/base"))}
        except NotFound:
            return set()


def refuse_forgotten(recorded_bases: Iterable[int], base: int, partition: str) -> None:
    """Raise Refused when a restore that recorded these bases has committed records, but the brokers have
    forgotten its progress. `base`: where it would begin in the partition now."""
    if all(recorded == base >= 0 for recorded in recorded_bases):
        return
    raise Refused(
        f"{partition}: this restore was interrupted, and the brokers have forgotten since how far it came "
        "(the offsets of its consumer group are gone): its records would be there twice.",
        hint="Delete the topic and run the same command again, or restore into another topic with --map.",
    )
