"""The life that all restores share, with every source and every target.

Tests use the local runner where little data allows it. Quick tests kill and repeat restores with all sources
and targets. Every step of a restore, and what is the same code for all, are long with most of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.chosen import mark_long
from tests.support.disks import read_only
from tests.support.looks import select_rows
from tests.support.restore_cases import (
    ArchiveCase,
    EncryptedLogIntoTopics,
    EncryptedSnapshotCase,
    LogIntoFolder,
    LogIntoTable,
    LogIntoTopics,
    PointIntoTable,
    QueuesCase,
    SnapshotCase,
    TopicsIntoFile,
    TopicsIntoFolder,
    TopicsIntoKafka,
    TopicsIntoTable,
)
from tests.support.restore_life import RestoreCase

from lakebackup.errors import Busy, EnvironmentProblem, Refused
from lakebackup_jobs.lifecycle.restore import RestoreRun

CASES: tuple[type[RestoreCase], ...] = (
    TopicsIntoKafka,
    TopicsIntoTable,
    TopicsIntoFolder,
    TopicsIntoFile,
    LogIntoTable,
    LogIntoFolder,
    LogIntoTopics,
    EncryptedLogIntoTopics,
    PointIntoTable,
    SnapshotCase,
    EncryptedSnapshotCase,
    ArchiveCase,
    QueuesCase,
)


Kind = type[RestoreCase]


def for_cases(
    kinds: tuple[Kind, ...] = CASES, *, quick: tuple[Kind, ...] = CASES, spark: bool = False
) -> pytest.MarkDecorator:
    """Parametrize a test with kinds of cases; those that are not `quick` are long. `spark`: all need a
    session."""
    parameters = []
    for kind in kinds:
        needs_spark = spark or kind.RUNNERS == ("spark",)
        marks = {"spark": needs_spark, "kafka": kind.INTO_KAFKA, "long": kind not in quick}
        names = [name for name, applies in marks.items() if applies]
        parameters.append(
            pytest.param(kind, marks=[getattr(pytest.mark, n) for n in names], id=kind.__name__)
        )
    return pytest.mark.parametrize("kind", parameters)


@pytest.fixture
def case(kind: type[RestoreCase], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RestoreCase]:
    bootstrap = request.getfixturevalue("broker").bootstrap if kind.INTO_KAFKA else ""
    session = request.getfixturevalue("spark") if request.node.get_closest_marker("spark") else None
    restore_case = kind(tmp_path, bootstrap, session)
    yield restore_case
    restore_case.close()


@for_cases()
def test_a_restore_that_is_killed_many_times_restores_all_once(case: RestoreCase) -> None:
    """Each run continues the work of the one before it, and dies at a later step."""
    for step in case.STATES:
        assert not case.is_complete, step
        assert case.killed(step), f"never: {step}"
    case.finish()
    case.assert_restored()


@pytest.mark.long
@for_cases()
def test_a_restore_that_is_killed_before_any_step_is_completed(case: RestoreCase) -> None:
    step = 1
    while True:
        killed_case = case.fresh(f"at{step}")
        steps = killed_case.killed(step)
        if steps is None:
            break
        killed_case.finish()
        killed_case.assert_restored()
        killed_case.close()
        step += 1
    assert step > len(case.STATES)


@for_cases(
    tuple(kind for kind in CASES if len(kind.RUNNERS) > 1), quick=(TopicsIntoKafka, SnapshotCase), spark=True
)
@pytest.mark.parametrize("runner", mark_long(["local", "spark"], ["local"]))
def test_a_restore_is_resumed_on_the_other_runner(case: RestoreCase, runner: Any) -> None:
    assert case.killed(case.MIDDLE, runner=runner), f"never: {case.MIDDLE}"
    case.run("spark" if runner == "local" else "local")
    case.assert_restored()


@for_cases()
def test_a_complete_restore_is_not_repeated_and_its_target_takes_no_other(case: RestoreCase) -> None:
    case.run()
    case.assert_restored()
    stored_bytes, rows = case.stored_bytes(), case.rows()
    case.repeat()
    with pytest.raises(Refused):
        case.run(**case.ANOTHER_REQUEST)
    assert (case.stored_bytes(), case.rows()) == (stored_bytes, rows)
    case.assert_restored()


@for_cases(tuple(kind for kind in CASES if kind.GUARDS_UNFINISHED), quick=(LogIntoTopics, SnapshotCase))
def test_the_target_of_an_unfinished_restore_takes_no_other(case: RestoreCase) -> None:
    assert case.killed(case.MIDDLE), f"never: {case.MIDDLE}"
    stored_bytes, rows = case.stored_bytes(), case.rows()
    with pytest.raises(Refused):
        case.run(**case.ANOTHER_REQUEST)
    assert (case.stored_bytes(), case.rows()) == (stored_bytes, rows)
    case.run()
    case.assert_restored()


@for_cases(quick=(TopicsIntoKafka, SnapshotCase))
def test_a_restore_that_was_planned_before_a_prune_starts_over(
    case: RestoreCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = RestoreRun.begin

    def prune_then_begin(run: RestoreRun, *arguments: Any, **detail: Any) -> None:
        case.prune()
        begin(run, *arguments, **detail)

    with monkeypatch.context() as patch:
        patch.setattr(RestoreRun, "begin", prune_then_begin)
        with pytest.raises(Busy, match="came in while this restore was being planned"):
            case.run()
    assert case.is_empty()
    case.run()
    case.assert_restored()


# What a log's topics hold is recorded in the repository, so a restore into topics needs to write there.
@for_cases(
    tuple(kind for kind in CASES if not issubclass(kind, LogIntoTopics)), quick=(TopicsIntoFile, SnapshotCase)
)
def test_a_restore_reads_a_repository_that_is_read_only(case: RestoreCase) -> None:
    with read_only(case.root):
        case.run()
    assert "no lease could be taken" in case.messages.getvalue()
    assert case.contents() == case.expected
    assert select_rows(case.root, "SELECT * FROM restores") == []


@for_cases(quick=(TopicsIntoKafka, LogIntoTable))
def test_a_failure_is_recorded_and_the_next_run_continues(case: RestoreCase) -> None:
    error = EnvironmentProblem("The disk is full.", hint="Free some space.")
    with case.watched(case.MIDDLE, error) as steps, pytest.raises(EnvironmentProblem) as raised:
        case.run()
    assert steps.raised
    row = case.rows()[-1]
    assert (row["state"], json.loads(row["detail"])["problem"]) == ("failed", "The disk is full.")
    hint = raised.value.hint
    assert hint.startswith("Free some space.")
    assert [name for name in case.TOPICS if f"{case.prefix}{name} is suspended" not in hint] == []
    case.assert_no_lease()
    case.run()
    case.assert_restored()


@for_cases(quick=(QueuesCase, TopicsIntoFolder))
def test_an_interrupted_restore_says_in_which_state_its_target_is(case: RestoreCase) -> None:
    with case.watched(case.MIDDLE, KeyboardInterrupt()) as steps, pytest.raises(KeyboardInterrupt):
        case.run()
    assert steps.raised
    assert [
        name for name in case.TOPICS if f"{case.prefix}{name} is suspended" not in case.messages.getvalue()
    ] == []
    assert not case.is_complete
    case.assert_no_lease()
    case.run()
    case.assert_restored()
