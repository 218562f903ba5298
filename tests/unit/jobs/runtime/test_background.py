from __future__ import annotations

import threading

import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime.background import later


def test_a_result_is_waited_for() -> None:
    release = threading.Event()
    started = later(lambda: release.wait(10) and "done")
    assert not started.done()
    release.set()
    assert started.result(10) == "done"


def test_an_error_is_raised_where_the_result_is_requested() -> None:
    def fail() -> None:
        raise EnvironmentProblem("No Java found.")

    started = later(fail)
    with pytest.raises(EnvironmentProblem, match="No Java"):
        started.result(10)
