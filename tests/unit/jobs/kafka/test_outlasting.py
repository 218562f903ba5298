"""How often a restore starts again when brokers do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.kafka.admin.problems import Fenced, Unanswered, problem
from lakebackup_jobs.kafka.client.produce import ATTEMPTS, outlasting

if TYPE_CHECKING:
    from collections.abc import Callable


def test_attempts_without_a_commit_are_limited() -> None:
    attempts = []

    def write(_: Callable[[], None]) -> None:
        attempts.append(1)
        raise Unanswered("nothing came")

    with pytest.raises(Unanswered):
        outlasting(write)
    assert len(attempts) == ATTEMPTS


def test_each_commit_allows_as_many_attempts_again() -> None:
    attempts = []

    def write(commits: Callable[[], None]) -> int:
        attempts.append(1)
        if len(attempts) % (ATTEMPTS - 1) == 0:
            commits()
        if len(attempts) < 3 * ATTEMPTS:
            raise Unanswered("nothing came")
        return 7

    assert outlasting(write) == 7


@pytest.mark.parametrize("error", [Fenced("taken over"), EnvironmentProblem("not allowed")])
def test_an_error_that_brokers_report_ends_the_attempts(error: EnvironmentProblem) -> None:
    attempts = []

    def write(_: Callable[[], None]) -> None:
        attempts.append(1)
        raise error

    with pytest.raises(type(error)):
        outlasting(write)
    assert len(attempts) == 1


@pytest.mark.parametrize(
    ("code", "repeats"), [(-185, True), (-187, True), (15, True), (29, False), (90, False)]
)
def test_error_codes_after_which_a_restore_starts_again(code: int, *, repeats: bool) -> None:
    assert isinstance(problem(code, "text", "t[0]"), Unanswered) == repeats
