"""Rules of retention, and when files are closed by time."""

from __future__ import annotations

from typing import Any

import pytest

from lakebackup.rules.retention import History, Limits, roll_ms, rule

NOW_MS = 1_000_000


def history(**changes: Any) -> History:
    columns: dict[str, Any] = {
        "source": "prod", "scope": "orders", "epoch": "e1", "base": "b1", "link": 1, "generation": 3,
        "settings": {"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"},
        "covered_to": NOW_MS, "present": True,
    }  # fmt: skip
    return History(**{**columns, **changes})


def settings(policy: str, ms: str = "1000", size: str = "500") -> dict[str, str]:
    return {"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        (settings("delete"), {}, (NOW_MS - 1000, 500, False)),
        (settings("delete", "-1", "-1"), {}, (None, None, False)),
        (settings("delete", "0", "0"), {}, (NOW_MS, 0, False)),
        ({}, {}, (None, None, False)),
        (settings("delete", "soon"), {}, (None, 500, False)),
        (settings("delete"), {"keep_ms": 5}, (NOW_MS - 5, 500, False)),
        (settings("delete", "-1", "-1"), {"keep_ms": 0, "keep_bytes": 0}, (NOW_MS, 0, False)),
        (settings("compact"), {}, (None, None, True)),
        (settings("compact"), {"keep_ms": 5, "keep_bytes": 5}, (None, None, True)),
        (settings("compact, delete"), {}, (NOW_MS - 1000, 500, True)),
        (settings("delete,compact"), {"keep_bytes": 7}, (NOW_MS - 1000, 7, True)),
    ],
)
def test_limits_override_the_topics_own_settings(
    own: dict[str, str], limits: dict[str, int], expected: tuple[int | None, int | None, bool]
) -> None:
    topic_rule = rule(history(settings=own), Limits(**limits), now_ms=NOW_MS)
    assert (topic_rule.cutoff_ts, topic_rule.keep_bytes, topic_rule.compacted) == expected
    assert (topic_rule.base, topic_rule.generation) == ("b1", 3)
    assert topic_rule.idle == (expected == (None, None, False))


def test_time_counts_back_from_the_newest_backup() -> None:
    """A lost cluster is not backed up any more. Its backups must not expire as time passes."""
    assert rule(history(covered_to=5000), now_ms=NOW_MS).cutoff_ts == 4000
    assert rule(history(covered_to=NOW_MS + 5000), now_ms=NOW_MS).cutoff_ts == NOW_MS - 1000


@pytest.mark.parametrize(
    ("own", "requested_ms", "expected"),
    [
        (settings("delete"), None, 100),
        (settings("delete", "604800000"), None, 60_480_000),
        (settings("compact,delete"), None, 100),
        (settings("compact"), None, None),
        (settings("delete", "-1"), None, None),
        (settings("delete", "5"), None, 1),
        (settings("delete"), 7, 7),
        (settings("delete"), 0, None),
        (settings("compact"), 7, 7),
    ],
)
def test_files_roll_at_a_tenth_of_the_retention(
    own: dict[str, str], requested_ms: int | None, expected: int | None
) -> None:
    assert roll_ms(own, requested_ms) == expected
