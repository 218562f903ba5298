"""The request for a backup of topics."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lakebackup.plan.parents import Mode
from lakebackup.plan.topics.backup import OnGap
from lakebackup.plan.topics.generations import GROWTH
from lakebackup.requests import RunRequest
from lakebackup_jobs.kafka.format.registry import SCHEMAS_TOPIC
from lakebackup_jobs.topics.forks import OnFork


@dataclass(frozen=True, slots=True)
class BackupRequest(RunRequest):
    """The options of a backup. `kafka`: librdkafka properties with bootstrap.servers; they may hold secrets.

    `level` and `parent`: see plan.parents.choose. `log`: the backup is a batch of following a source.
    `roll_ms`: a file is closed when its records span this many ms; 0: never; None: by the topic's retention.
    `recipients`: who can read the backup's files; without recipients they are not encrypted.
    """

    topics: tuple[str, ...]
    kafka: Mapping[str, str]
    source: str | None = None
    patterns: tuple[str, ...] = ()
    isolation: str = "read_committed"
    codec: str = "zstandard"
    compression_level: int | None = None
    target_bytes: int = 128 << 20
    roll_ms: int | None = None
    mode: Mode = "auto"
    level: int | None = None
    parent: str | None = None
    on_gap: OnGap = "restart"
    on_fork: OnFork = "branch"
    note: str | None = None
    log: bool = False
    new_generation: bool = False
    growth: float = GROWTH
    groups: Literal["all", "none"] = "all"
    schema_topics: tuple[str, ...] = (SCHEMAS_TOPIC,)
    recipients: tuple[str, ...] = ()
    parallelism: int = os.cpu_count() or 2
