from __future__ import annotations

from typing import Any

import pytest

from lakebackup.errors import Refused
from lakebackup_jobs.changelog.control import _check_goes_on
from lakebackup_jobs.changelog.task import TaskSettings


def settings(**changes: Any) -> TaskSettings:
    return TaskSettings(**{"feed": "br", "bootstrap": "h", "topics": ("t",), **changes})


NAMES = [
    {"table_id": 1, "db": "shop", "name": "orders"},
    {"table_id": 1, "db": "old", "name": "orders"},
    {"table_id": 2, "db": "log", "name": "hits"},
]


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        ({}, {}, None),
        ({}, {"lastbackupts": 70, "codec": "lz4", "bootstrap": "other"}, None),
        ({"lastbackupts": 5}, {"lastbackupts": 5}, None),
        ({}, {"lastbackupts": 5}, "reaches up to 70; it cannot go on from 5"),
        ({}, {"feed": "debezium"}, "is a task of the feed br"),
        ({}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 200}, "is to end at 100"),
        ({"endts": 100}, {}, "is to end at 100"),
        ({}, {"endts": 70}, None),
        ({}, {"endts": 69}, "reaches up to 70 already; it cannot end at 69"),
        ({"endts": 50}, {"endts": 50}, "reaches up to 70 already"),
        ({}, {"topics": ("t", "u")}, "is a task of the topics t"),
        ({"filters": ("shop.*",)}, {"filters": ("old.o*",)}, None),  # all that it captures had such a name
        ({"filters": ("shop.*",)}, {}, None),
        ({}, {"filters": ("*.*", "!log.*")}, "captures log.hits, which"),
        (
            {"filters": ("shop.*", "log.*")},
            {"filters": ("x.*",)},
            "captures log.hits and 1 more tables, which",
        ),
    ],
)
def test_with_which_settings_a_task_goes_on(
    was: dict[str, Any], now: dict[str, Any], refused: str | None
) -> None:
    """What flushes have left out, no later one has."""
    if refused is None:
        _check_goes_on("prod", settings(**was), settings(**now), {"end_ts": 70}, NAMES)
        return
    with pytest.raises(Refused, match=refused):
        _check_goes_on("prod", settings(**was), settings(**now), {"end_ts": 70}, NAMES)
