"""Questions asked in a process of its own, so that its memory and its first answer are its own.

Such a process prints one JSON line a question on standard error: `seconds`, `cpu` and `answers` of each run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Cost, MeasuringError, of_module


def answer(
    ask: Callable[[int], Any],
    runs: int,
    *,
    opened: float = 0.0,
    cpu_s: Callable[[], float] = time.process_time,
    **about: Callable[[], Any],
) -> None:
    """Ask once and `runs` times more, and print it, with what is known `about` it afterwards.

    `opened`: seconds that count as the first answer's. `cpu_s`: CPU seconds so far, by default
    this process's.
    """
    seconds, cpu, answers = [], [], []
    for run in range(runs + 1):
        at, before = time.perf_counter(), cpu_s()
        answers.append(ask(run))
        seconds.append(time.perf_counter() - at + (0.0 if run else opened))
        cpu.append(cpu_s() - before)
    told = {"seconds": seconds, "cpu": cpu, "answers": answers}
    told |= {name: of() for name, of in about.items()}
    print(json.dumps(told), file=sys.stderr, flush=True)


def asked(
    module: str, *arguments: object, log: Path, questions: int = 1
) -> tuple[Cost, list[dict[str, Any]]]:
    """What such a process cost and answered."""
    cost = of_module(module, *arguments, log=log)
    text = log.read_text("utf-8", "replace")
    told = [json.loads(line) for line in text.splitlines() if line.startswith('{"seconds"')]
    if len(told) != questions:
        raise MeasuringError(text[-2000:])
    return cost, told
