"""A restore writes no record twice: its bases tell that it began, even if brokers lost its progress."""

from __future__ import annotations

import pytest

from lakebackup.errors import Refused
from lakebackup.storage import Storage
from lakebackup_jobs.targets.bases import Bases, refuse_forgotten

FOLDER = "restores/r/"


def test_every_attempt_knows_where_the_earlier_ones_began(storage: Storage) -> None:
    first = Bases(storage, FOLDER, "p")
    assert first.of("id", "0") == set()
    first.record({("id", "0"): 5})
    first.record({("id", "1"): 0, ("other id", "0"): 7})
    Bases(storage, FOLDER, "p").record({("id", "2"): 9})
    last = Bases(storage, FOLDER, "p")
    recorded = [last.of("id", "0"), last.of("id", "1"), last.of("id", "2"), last.of("other id", "0")]
    assert recorded == [{5}, {0}, {9}, {7}]
    assert last.of("id of a topic with the same name", "0") == set()
    assert Bases(storage, FOLDER, "another").of("id", "0") == set()


def test_bases_of_an_earlier_version_count(storage: Storage) -> None:
    storage.put(f"{FOLDER}plan/id/0/base", b"5")
    bases = Bases(storage, FOLDER, "p")
    assert bases.of("id", "0") == {5}
    assert bases.of("id", "1") == set()


@pytest.mark.parametrize("bases", [[], [5], [5, 5]])
def test_a_restore_goes_on_where_nothing_came_after_its_base(bases: list[int]) -> None:
    refuse_forgotten(bases, 5, "orders[0]")


@pytest.mark.parametrize(("bases", "base"), [([5], 6), ([5, 6], 6), ([-1], -1)])
def test_progress_that_was_forgotten_is_refused(bases: list[int], base: int) -> None:
    """A base of -1 is that of records which went to the partitions of their keys: it says nothing."""
    with pytest.raises(Refused, match=r"orders\[0\].*would be there twice"):
        refuse_forgotten(bases, base, "orders[0]")
