"""Asks questions in a separate process, so that its memory and its first answer are measured alone.

The process prints one line of JSON for each question on standard error: `seconds`, `cpu` and `answers` of all
runs.
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
    **details: Callable[[], Any],
) -> None:
    """Ask once and `runs` times more, and print the report. The results of `details`, which are called
    afterwards, are added to the report by name.

    `opened`: seconds that are added to the first run. `cpu_s` returns the CPU seconds so far, by default of
    this process.
    """
    seconds, cpu, answers = [], [], []
    for run in range(runs + 1):
        started, cpu_before = time.perf_counter(), cpu_s()
        answers.append(ask(run))
        seconds.append(time.perf_counter() - started + (0.0 if run else opened))
        cpu.append(cpu_s() - cpu_before)
    report = {"seconds": seconds, "cpu": cpu, "answers": answers}
    report |= {name: value_of() for name, value_of in details.items()}
    print(json.dumps(report), file=sys.stderr, flush=True)


def run_and_report(
    module: str, *arguments: object, log: Path, questions: int = 1
) -> tuple[Cost, list[dict[str, Any]]]:
    """Run a module that calls `answer`. Returns its cost and one report for each question.

    Raises MeasuringError when there are fewer or more reports than `questions`.
    """
    cost = of_module(module, *arguments, log=log)
    text = log.read_text("utf-8", "replace")
    reports = [json.loads(line) for line in text.splitlines() if line.startswith('{"seconds"')]
    if len(reports) != questions:
        raise MeasuringError(text[-2000:])
    return cost, reports
