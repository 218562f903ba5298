"""Lives of hypothesis's state machines: so many of them, the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

if TYPE_CHECKING:
    from collections.abc import Callable


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
