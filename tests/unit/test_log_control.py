from __future__ import annotations

from typing import Any

import pytest

from lakebackup.errors import Refused
from lakebackup_jobs.changelog.control import _check_goes_on
from lakebackup_jobs.changelog.task import TaskSettings


def settings(**changes: Any) -> TaskSettings:
    return TaskSettings(**{"feed": "br", "bootstrap": "h", "topics": ("t",), **changes})


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        ({}, {}, None),
        ({}, {"lastbackupts": 70, "codec": "lz4", "filters": ("a.*",)}, None),
        ({"lastbackupts": 5}, {"lastbackupts": 5}, None),
        ({}, {"lastbackupts": 5}, "reaches up to 70; it cannot go on from 5"),
        ({}, {"feed": "debezium"}, "is a task of the feed br"),
        ({}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 200}, "is to end at 100"),
        ({"endts": 100}, {}, "is to end at 100"),
    ],
)
def test_with_which_settings_a_task_goes_on(
    was: dict[str, Any], now: dict[str, Any], refused: str | None
) -> None:
    """What flushes have left out, no later one has."""
    if refused is None:
        _check_goes_on("prod", settings(**was), settings(**now), {"end_ts": 70})
        return
    with pytest.raises(Refused, match=refused):
        _check_goes_on("prod", settings(**was), settings(**now), {"end_ts": 70})
