"""The settings that topics had before restores suspended some of them.

They are recorded beside the backups, by the topic's id, before the first setting is changed. So after a
killed restore, the next restore into the topic that finishes puts them back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup.plan.partitions import TopicState
from lakebackup.rules import layout
from lakebackup.storage import Storage, working
from lakebackup_jobs.targets.topics import LARGEST, RETENTION, SUSPENDED


class SettingsBefore:
    """Records the settings of one cluster's topics before restores change them, in the storage of the
    backups."""

    def __init__(self, storage: Storage, cluster_id: str) -> None:
        self._storage, self._cluster_id = storage, cluster_id

    def record(self, topic: TopicState) -> Mapping[str, str] | None:
        """Record the topic's own settings, and return those from before any restore changed them; None: not
        known, because an unfinished restore created the topic."""
        recorded = self.read(topic)
        # A restore puts all settings back in one request. While retention is suspended, they are not final.
        if recorded is not None and _has(topic.settings, RETENTION):
            return recorded
        if is_suspended(topic.settings):
            return None
        with suppress(EnvironmentProblem):  # a restore from read-only storage starts over anyway
            self._storage.put(self._path(topic), json.dumps(topic.settings).encode(), if_absent=False)
        return topic.settings

    def forget(self, topic: TopicState) -> None:
        """Delete the record. Call it when the topic's settings are final."""
        with suppress(EnvironmentProblem):
            working.retire(self._storage, self._path(topic))

    def read(self, topic: TopicState) -> Mapping[str, str] | None:
        """The recorded settings of the topic; None: there is no record."""
        try:
            settings: Mapping[str, str] = json.loads(working.read_latest(self._storage, self._path(topic)))
        except NotFound:
            return None
        return settings

    def _path(self, topic: TopicState) -> str:
        identity = f"{self._cluster_id}\n{topic.epoch}"
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        return f"{layout.restore_folder(f'settings-{name}')}own.json"


def is_suspended(settings: Mapping[str, str]) -> bool:
    """Whether settings are those of a topic that a restore writes into."""
    return _has(settings, [name for name in SUSPENDED if name != LARGEST])


def _has(settings: Mapping[str, str], names: Iterable[str]) -> bool:
    """Whether the settings with these names have the values of SUSPENDED."""
    return all(settings.get(name) == SUSPENDED[name] for name in names)
