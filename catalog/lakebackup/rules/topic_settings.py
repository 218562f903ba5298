"""A topic's settings as backups keep them: its own, and those it inherits from its brokers. Pure.

Kept as one JSON object: the topic's own settings by name, and under `inherited` those that the brokers set
(`broker`) and Kafka's defaults (`default`). Older backups lack the latter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebackup.rules.stored_json import object_of

if TYPE_CHECKING:
    from collections.abc import Mapping

INHERITED = "inherited"


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """`own`: name -> value of what the topic overrides. `inherited`: the same for each other origin."""

    own: Mapping[str, str]
    inherited: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def in_force(self) -> dict[str, str]:
        """The value of every setting that is known."""
        return {**self.inherited.get("default", {}), **self.inherited.get("broker", {}), **self.own}

    def dump(self) -> str:
        """As the column `settings` keeps it."""
        rest: dict[str, Any] = {INHERITED: self.inherited} if self.inherited else {}
        return json.dumps({**self.own, **rest}, sort_keys=True)


def load(text: str) -> TopicSettings:
    """The settings that the column `settings` keeps."""
    own = object_of(text)
    return TopicSettings(own, own.pop(INHERITED, {}))


def in_force(text: str) -> dict[str, str]:
    """The settings in force, from the column `settings`."""
    return load(text).in_force
