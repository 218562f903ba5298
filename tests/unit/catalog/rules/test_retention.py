"""Rules of retention, and when files are closed by time."""

from __future__ import annotations

from typing import Any

import pytest

from lakebackup.rules.retention import History, Limits, roll_ms, rule

NOW = 1_000_000


def history(**changes: Any) -> History:
    given: dict[str, Any] = {
        "source": "prod", "scope": "orders", "epoch": "e1", "base": "b1", "link": 1, "generation": 3,
        "settings": {"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"},
        "covered_to": NOW, "present": True,
    }  # fmt: skip
    return History(**{**given, **changes})


def settings(policy: str, ms: str = "1000", size: str = "500") -> dict[str, str]:
    return {"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}


@pytest.mark.parametrize(
    ("own", "told", "expected"),
    [
        (settings("delete"), {}, (NOW - 1000, 500, False)),
        (settings("delete", "-1", "-1"), {}, (None, None, False)),
        (settings("delete", "0", "0"), {}, (NOW, 0, False)),
        ({}, {}, (None, None, False)),
        (settings("delete", "soon"), {}, (None, 500, False)),
        (settings("delete"), {"keep_ms": 5}, (NOW - 5, 500, False)),
        (settings("delete", "-1", "-1"), {"keep_ms": 0, "keep_bytes": 0}, (NOW, 0, False)),
        (settings("compact"), {}, (None, None, True)),
        (settings("compact"), {"keep_ms": 5, "keep_bytes": 5}, (None, None, True)),
        (settings("compact, delete"), {}, (NOW - 1000, 500, True)),
        (settings("delete,compact"), {"keep_bytes": 7}, (NOW - 1000, 7, True)),
    ],
)
def test_the_topics_own_settings_unless_overridden(
    own: dict[str, str], told: dict[str, int], expected: tuple[int | None, int | None, bool]
) -> None:
    made = rule(history(settings=own), Limits(**told), now=NOW)
    assert (made.cutoff_ts, made.keep_bytes, made.compacted) == expected
    assert (made.base, made.generation) == ("b1", 3)
    assert made.idle == (expected == (None, None, False))


def test_time_counts_back_from_the_newest_backup() -> None:
    """A cluster that is lost is not backed up any more: what was kept of it must not fade away."""
    assert rule(history(covered_to=5000), now=NOW).cutoff_ts == 4000
    assert rule(history(covered_to=NOW + 5000), now=NOW).cutoff_ts == NOW - 1000


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
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
    own: dict[str, str], asked: int | None, expected: int | None
) -> None:
    assert roll_ms(own, asked) == expected
