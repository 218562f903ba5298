"""A topic's settings as backups store them: its own, and those it inherits from its brokers. Without I/O.

They are one JSON object: the topic's own settings by name, and under `inherited` those that the brokers set
(`broker`) and Kafka's defaults (`default`). Older backups have no `inherited`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebackup.rules.stored_json import object_of

INHERITED = "inherited"


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """`own`: name -> value of the settings that the topic overrides. `inherited`: origin -> name -> value."""

    own: Mapping[str, str]
    inherited: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def in_force(self) -> dict[str, str]:
        """The value in force of every known setting: the topic's own, else the brokers', else the default."""
        return {**self.inherited.get("default", {}), **self.inherited.get("broker", {}), **self.own}

    def dump(self) -> str:
        """The JSON text for the column `settings`."""
        inherited_entry: dict[str, Any] = {INHERITED: self.inherited} if self.inherited else {}
        return json.dumps({**self.own, **inherited_entry}, sort_keys=True)


def load(text: str) -> TopicSettings:
    """Parse the text of a column `settings`. Text of another form gives no settings."""
    own = object_of(text)
    return TopicSettings(own, own.pop(INHERITED, {}))


def in_force(text: str) -> dict[str, str]:
    """The settings in force, from the text of a column `settings`."""
    return load(text).in_force
