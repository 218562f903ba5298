"""Measures what a backup does to writers at full speed: how much they slow down, and their longest pause."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks import measure
from tests.benchmarks.measure import of_command, progress
from tests.benchmarks.ours import Session
from tests.benchmarks.queue_load import TICK_S, Queues, Store
from tests.benchmarks.queues import consume, words
from tests.benchmarks.report import markdown, spread

from lakebackup_jobs.demo.broker import Broker

WRITERS = 2
#: Seconds before the first measured span, and seconds of the writers alone before each backup.
WARM_S, ALONE_S = 3.0, 6.0
DIFFERENTIAL, FULL = "differential", "full"
COPY, CONSUMER = "cp -r and sync", "plain consumer to a file"

Span = tuple[float, float]


@dataclass(frozen=True)
class WriterNotes:
    """The report of one writer: acknowledged messages by tick, and its pauses."""

    ticks: dict[int, int]
    pauses: list[Span]

    def rate(self, span: Span) -> float:
        """Return the acknowledged messages per second of a span."""
        first, last = (int(instant / TICK_S) for instant in span)
        last = max(last, first + 1)
        return sum(self.ticks.get(tick, 0) for tick in range(first, last)) / ((last - first) * TICK_S)

    def pause(self, span: Span) -> float:
        """Return the longest time in seconds between two acknowledgements that overlaps a span."""
        return max(
            (end - start for start, end in self.pauses if start < span[1] and span[0] < end), default=0.0
        )


@dataclass(frozen=True)
class Effect:
    """The effect of one act on all writers.

    `seconds`: duration of the act. `without_backup` and `during`: messages per second of all writers before
    and during the act. `pause_alone` and `pause_during`: the longest pause of any writer, in seconds.
    """

    seconds: float
    without_backup: float
    during: float
    pause_alone: float
    pause_during: float


def effect(writers: list[WriterNotes], alone_span: Span, during_span: Span) -> Effect:
    """Return the effect of an act on the writers.

    `pause_alone` is the median over spans as long as the act, because longer spans have longer pauses.
    """
    length = during_span[1] - during_span[0]
    count = max(1, int((alone_span[1] - alone_span[0]) / length))
    step = (alone_span[1] - alone_span[0]) / count
    spans = [(alone_span[0] + step * i, alone_span[0] + step * (i + 1)) for i in range(count)]
    return Effect(
        length,
        sum(writer.rate(alone_span) for writer in writers),
        sum(writer.rate(during_span) for writer in writers),
        median(max(writer.pause(span) for writer in writers) for span in spans),
        max(writer.pause(during_span) for writer in writers),
    )


def writing(broker: Broker, session: Session, folder: Path, bytes_: int, runs: int) -> str:
    """Return Markdown: medians of `runs` rounds. In each round the writers run through all acts."""
    folder.mkdir(parents=True)
    store = Store(folder / "store")
    store.make(bytes_)
    effects_by_act: dict[str, list[Effect]] = {}
    for number in range(1 - measure.UNCOUNTED, runs + 1):
        queues = Queues(broker.bootstrap, f"writers{number}")
        queues.create()
        effects = _round(session, queues, store, folder)
        queues.delete()
        for name, act_effect in effects.items():
            progress(
                f"round {number}, {name}: {act_effect.seconds:.2f} s, writers "
                f"{act_effect.without_backup:,.0f} to {act_effect.during:,.0f} messages/s, "
                f"pause {act_effect.pause_during * 1000:.0f} ms"
            )
            if number > 0:
                effects_by_act.setdefault(name, []).append(act_effect)
    store.delete()
    return _table(effects_by_act)


def _round(session: Session, queues: Queues, store: Store, folder: Path) -> dict[str, Effect]:
    repo, copy, file = folder / "ours", folder / "copy", folder / "messages"
    shutil.rmtree(repo, ignore_errors=True)
    session.ask("catalog", "init", "--repo", repo)
    store.write_snapshot_json(queues)
    starts = queues.ends()
    session.ask(*words(queues, store, repo, "full"))
    spans: dict[str, tuple[Span, Span]] = {}

    @contextmanager
    def act(name: str) -> Iterator[None]:
        alone_start = time.monotonic()
        time.sleep(ALONE_S)
        started = time.monotonic()
        yield
        spans[name] = (alone_start, started), (started, time.monotonic())

    with _writers(queues) as writers:
        time.sleep(WARM_S)
        with act(DIFFERENTIAL):
            session.ask(*words(queues, store, repo, "differential"))
        ends = queues.ends()
        with act(CONSUMER):
            consume(
                queues.bootstrap,
                file,
                {partition: (first_offset, ends[partition]) for partition, first_offset in starts.items()},
            )
        store.renew()
        with act(FULL):
            store.write_snapshot_json(queues)
            session.ask(*words(queues, store, repo, "full"))
        with act(COPY):
            script = 'cp -r "$0" "$1" && sync -f "$1"'
            of_command(["sh", "-c", script, str(store.snapshot), str(copy)], folder / "command.log")
    file.unlink()
    shutil.rmtree(copy)
    return {name: effect(writers, *alone_and_during) for name, alone_and_during in spans.items()}


@contextmanager
def _writers(queues: Queues) -> Iterator[list[WriterNotes]]:
    """Run writers. After the block, the yielded list holds their reports."""
    command = [sys.executable, "-m", "tests.benchmarks.queue_load", queues.bootstrap, queues.name]
    reports: list[WriterNotes] = []
    processes = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(WRITERS)
    ]
    try:
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        yield reports
        for process in processes:
            process.terminate()
        for process in processes:
            report = json.loads(process.communicate(timeout=120)[0])
            reports.append(
                WriterNotes(dict(report["ticks"]), [(start, end) for start, end in report["pauses"]])
            )
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _table(effects_by_act: dict[str, list[Effect]]) -> str:
    head = ["meanwhile", "it takes, s", "messages/s alone", "during", "during / alone (least to most)"]
    head += ["longest pause alone, ms", "during, ms", "most of all rounds, ms"]
    rows = []
    for name, effects in effects_by_act.items():
        slower = [round_effect.during / round_effect.without_backup for round_effect in effects]
        rows.append(
            [
                name,
                f"{median(round_effect.seconds for round_effect in effects):.2f}",
                f"{median(round_effect.without_backup for round_effect in effects):,.0f}",
                f"{median(round_effect.during for round_effect in effects):,.0f}",
                spread(slower),
                f"{median(round_effect.pause_alone for round_effect in effects) * 1000:.0f}",
                f"{median(round_effect.pause_during for round_effect in effects) * 1000:.0f}",
                f"{max(round_effect.pause_during for round_effect in effects) * 1000:.0f}",
            ]
        )
    return markdown(head, rows)
