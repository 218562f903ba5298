"""The settings that topics had before restores suspended some of them.

They are recorded beside the backups before the first one is changed, by the topic's own id. So whichever
restore into the topic finishes next puts them back, also after one that was killed.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup.rules import layout
from lakebackup.storage import working
from lakebackup_jobs.targets.topics import LARGEST, RETENTION, SUSPENDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebackup.plan.partitions import TopicState
    from lakebackup.storage import Storage


class SettingsBefore:
    """The settings before restores into the topics of one cluster. `storage` holds the backups."""

    def __init__(self, storage: Storage, cluster_id: str) -> None:
        self._storage, self._cluster_id = storage, cluster_id

    def record(self, topic: TopicState) -> Mapping[str, str] | None:
        """The topic's own settings before restores changed any; None when that is not known, since a restore
        made the topic and did not finish."""
        recorded = self.read(topic)
        # Retention is put back last, in one request.
        if recorded is not None and _has(topic.settings, RETENTION):
            return recorded
        if is_suspended(topic.settings):
            return None
        with suppress(EnvironmentProblem):  # a restore from storage that cannot be written starts over
            self._storage.put(self._path(topic), json.dumps(topic.settings).encode(), if_absent=False)
        return topic.settings

    def forget(self, topic: TopicState) -> None:
        """Drop the record once the settings are final."""
        with suppress(EnvironmentProblem):
            working.retire(self._storage, self._path(topic))

    def read(self, topic: TopicState) -> Mapping[str, str] | None:
        """What is recorded of the topic; None: nothing."""
        try:
            settings: Mapping[str, str] = json.loads(working.get(self._storage, self._path(topic)))
        except NotFound:
            return None
        return settings

    def _path(self, topic: TopicState) -> str:
        identity = f"{self._cluster_id}\n{topic.epoch}"
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        return f"{layout.restore_folder(f'settings-{name}')}own.json"


def is_suspended(settings: Mapping[str, str]) -> bool:
    """Whether settings are those of a topic in the middle of a restore."""
    return _has(settings, [name for name in SUSPENDED if name != LARGEST])


def _has(settings: Mapping[str, str], names: Iterable[str]) -> bool:
    """Whether settings are the suspended ones, of these names."""
    return all(settings.get(name) == SUSPENDED[name] for name in names)
