"""Flags of the command line in messages become Python arguments. Quoted commands stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup.errors import Refused
from lakebackup_jobs.connection import RestoreOptions
from lakebackup_jobs.query.python_words import ARGUMENTS, SWITCHES, in_python_words, translated

CLI = Path(__file__).parents[4] / "docs" / "reference" / "cli" / "flags.md"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Choose another --to-time.", "Choose another `to_time`."),
        (
            "Accept the holes with --allow-gaps (it is recorded).",
            "Accept the holes with `allow_gaps=True` (it is recorded).",
        ),
        ("Restore into another topic with --map a=b;", 'Restore into another topic with `maps={"a": "b"}`;'),
        ("Choose one with --source NAME.", 'Choose one with `source="NAME"`.'),
        ("restore with --topic-settings saved", 'restore with `settings="saved"`'),
        ("Use --engine spark.", "Use `engine=spark`."),
        ("--from-time would leave out what lies between.", "`from_time` would leave out what lies between."),
        ("allow more time with --timeout 30m", 'allow more time with `timeout="30m"`'),
        (
            "`lakebackup verify` lists it; --select with --partial leaves it out.",
            "`lakebackup verify` lists it; `select` with `partial=True` leaves it out.",
        ),
        ("Run `lakebackup prune --source prod --delete`.", "Run `lakebackup prune --source prod --delete`."),
        ("Give --lease-ttl 60.", "Give --lease-ttl 60."),
        ("`--backup 2026Z-1` restores it, `--to-time` too", '`backup="2026Z-1"` restores it, `to_time` too'),
        ("a -- b", "a -- b"),
    ],
)
def test_flags_become_arguments(text: str, expected: str) -> None:
    assert translated(text) == expected


def test_an_error_keeps_its_type() -> None:
    with pytest.raises(Refused) as error, in_python_words():
        raise Refused("--partial is missing.", hint="Give a later --to-time.")
    assert str(error.value) == "`partial=True` is missing.\nGive a later `to_time`."


def test_every_argument_of_a_restore_has_its_flag() -> None:
    assert set(RestoreOptions.__annotations__) <= {*ARGUMENTS.values(), *SWITCHES.values()}
    reference = CLI.read_text("utf-8")
    assert [flag for flag in ARGUMENTS | SWITCHES if f"`{flag}" not in reference] == []
