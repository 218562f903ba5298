"""The kinds of change feeds, by name."""

from __future__ import annotations

from collections.abc import Mapping

from lakebackup.errors import Refused
from lakebackup_jobs.logs.feeds import Feed
from lakebackup_jobs.logs.feeds.br import BrFeed
from lakebackup_jobs.logs.feeds.debezium import DebeziumFeed
from lakebackup_jobs.logs.feeds.unavailable import DEFAULT, Placeholder
from lakebackup_jobs.logs.skips import by_partition
from lakebackup_jobs.logs.task import TaskSettings


def feed_of(settings: TaskSettings, client: Mapping[str, str]) -> Feed:
    """The feed of a task. `client`: librdkafka's settings.

    Raises Refused for a Debezium feed with gaps, as its transactions are complete only with all their events.
    Raises UsageProblem for an invalid placeholder.
    """
    if settings.feed == "debezium":
        if settings.allow_gaps:
            raise Refused(
                "--allow-gaps cannot be used with a Debezium feed: a transaction that lost an event is never "
                "whole, and the log would end before it.",
                hint="Start a new task on a connector with a new topic.prefix, which takes a new snapshot.",
            )
        placeholder = Placeholder(settings.unavailable_value or DEFAULT)
        skipped = by_partition(settings.skip)
        return DebeziumFeed(client, settings.topics, skipped=skipped, placeholder=placeholder)
    return BrFeed(settings.topics, skipped=by_partition(settings.skip))
