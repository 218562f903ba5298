"""Lives of backups, and of hypothesis's state machines: so many of them, the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.source import Source


def live(machine: Callable[[], RuleBasedStateMachine], lives: int, steps: int) -> None:
    """Run so many lives of so many steps; of one that fails, look for the shortest that does."""
    profile = settings(
        max_examples=lives,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(machine, settings=profile)


def read_draft(storage: Storage, name: str, source: type[Source[Any]]) -> Any:
    """The draft that an interrupted backup of a source left; None without one."""
    assert source.DRAFT
    return sidecar.get_record(storage, layout.in_progress_path(name), source.DRAFT)
