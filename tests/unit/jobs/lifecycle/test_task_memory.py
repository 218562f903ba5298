"""How many tasks run at a time in little memory, and what is said when one does not fit."""

from __future__ import annotations

import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format import stored
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks import memory
from lakebackup_jobs.lifecycle.tasks.memory import (
    bytes_to_read,
    bytes_to_write,
    largest_record,
    tasks_at_once,
)

GIB, MIB = 1 << 30, 1 << 20


def test_tasks_share_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: GIB)
    assert tasks_at_once(64 * MIB, 200) == 8
    assert tasks_at_once(64 * MIB, 3) == 3
    assert tasks_at_once(4 * GIB, 8) == 1


def test_a_task_needs_more_for_large_records_and_files() -> None:
    small, large = {"max.message.bytes": "1048588"}, {"max.message.bytes": str(100 * MIB)}
    assert largest_record([small]) == largest_record([{}]) == 4 * MIB
    assert largest_record([small, large]) == 100 * MIB
    assert bytes_to_read(100 * MIB) - bytes_to_read(4 * MIB) == 7 * 96 * MIB
    assert bytes_to_write(4 * MIB, 128 * MIB, 64 * MIB) == 248 * MIB


def test_a_file_that_does_not_fit_is_named_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "memory_limit", lambda: GIB)
    file = StoredFile("orders", "e", "0", 0, 9, "main", "data/0.data", "v2", "null", 2 * GIB, "", 9)
    with pytest.raises(EnvironmentProblem, match=r"data/0\.data has 2147483648 bytes") as problem:
        open_verified(Roots({}), file)
    assert "--target-size" in problem.value.hint
