"""What a backup does to writers at full speed: how much slower they are, and their longest pause."""

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
#: Seconds before the first measured span, and before each backup: the writers alone.
WARM_S, ALONE_S = 3.0, 6.0
DIFFERENTIAL, FULL = "differential", "full"
COPY, CONSUMER = "cp -r and sync", "plain consumer to a file"

Span = tuple[float, float]


@dataclass(frozen=True)
class Told:
    """What one writer put down."""

    ticks: dict[int, int]
    pauses: list[Span]

    def rate(self, span: Span) -> float:
        """Acknowledged messages a second."""
        first, last = (int(at / TICK_S) for at in span)
        last = max(last, first + 1)
        return sum(self.ticks.get(tick, 0) for tick in range(first, last)) / ((last - first) * TICK_S)

    def pause(self, span: Span) -> float:
        """The longest time between two acknowledgements that a span has a part of, in seconds."""
        return max((to - at for at, to in self.pauses if at < span[1] and span[0] < to), default=0.0)


@dataclass(frozen=True)
class Effect:
    """One act among writers: its seconds; what all of them write in a second, and the longest pause of any,
    alone and during it."""

    seconds: float
    alone: float
    during: float
    pause_alone: float
    pause_during: float


def effect(told: list[Told], alone: Span, during: Span) -> Effect:
    """Alone, the pause is the median of those in spans as long as the act: longer ones have longer pauses."""
    length = during[1] - during[0]
    count = max(1, int((alone[1] - alone[0]) / length))
    step = (alone[1] - alone[0]) / count
    spans = [(alone[0] + step * i, alone[0] + step * (i + 1)) for i in range(count)]
    return Effect(
        length,
        sum(one.rate(alone) for one in told),
        sum(one.rate(during) for one in told),
        median(max(one.pause(span) for one in told) for span in spans),
        max(one.pause(during) for one in told),
    )


def writing(broker: Broker, session: Session, folder: Path, bytes_: int, runs: int) -> str:
    """Markdown: medians of `runs` rounds; in each the writers go on through all acts."""
    folder.mkdir(parents=True)
    store = Store(folder / "store")
    store.make(bytes_)
    found: dict[str, list[Effect]] = {}
    for number in range(1 - measure.UNCOUNTED, runs + 1):
        queues = Queues(broker.bootstrap, f"writers{number}")
        queues.create()
        effects = _round(session, queues, store, folder)
        queues.delete()
        for name, each in effects.items():
            progress(
                f"round {number}, {name}: {each.seconds:.2f} s, writers {each.alone:,.0f} to "
                f"{each.during:,.0f} messages/s, pause {each.pause_during * 1000:.0f} ms"
            )
            if number > 0:
                found.setdefault(name, []).append(each)
    store.delete()
    return _table(found)


def _round(session: Session, queues: Queues, store: Store, folder: Path) -> dict[str, Effect]:
    ours, copy, file = folder / "ours", folder / "copy", folder / "messages"
    shutil.rmtree(ours, ignore_errors=True)
    session.ask("catalog", "init", "--repo", ours)
    store.stands(queues)
    start = queues.ends()
    session.ask(*words(queues, store, ours, "full"))
    spans: dict[str, tuple[Span, Span]] = {}

    @contextmanager
    def act(name: str) -> Iterator[None]:
        alone = time.monotonic()
        time.sleep(ALONE_S)
        begun = time.monotonic()
        yield
        spans[name] = (alone, begun), (begun, time.monotonic())

    with _writers(queues) as told:
        time.sleep(WARM_S)
        with act(DIFFERENTIAL):
            session.ask(*words(queues, store, ours, "differential"))
        ends = queues.ends()
        with act(CONSUMER):
            consume(queues.bootstrap, file, {place: (at, ends[place]) for place, at in start.items()})
        store.renew()
        with act(FULL):
            store.stands(queues)
            session.ask(*words(queues, store, ours, "full"))
        with act(COPY):
            script = 'cp -r "$0" "$1" && sync -f "$1"'
            of_command(["sh", "-c", script, str(store.snapshot), str(copy)], folder / "command.log")
    file.unlink()
    shutil.rmtree(copy)
    return {name: effect(told, *both) for name, both in spans.items()}


@contextmanager
def _writers(queues: Queues) -> Iterator[list[Told]]:
    """Writers at work; behind the block the list has what they put down."""
    command = [sys.executable, "-m", "tests.benchmarks.queue_load", queues.bootstrap, queues.name]
    told: list[Told] = []
    at_work = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(WRITERS)
    ]
    try:
        for writer in at_work:
            assert writer.stdout
            assert writer.stdout.readline() == "ready\n"
        yield told
        for writer in at_work:
            writer.terminate()
        for writer in at_work:
            found = json.loads(writer.communicate(timeout=120)[0])
            told.append(Told(dict(found["ticks"]), [(at, to) for at, to in found["pauses"]]))
    finally:
        for writer in at_work:
            writer.kill()
            writer.wait()


def _table(found: dict[str, list[Effect]]) -> str:
    head = ["meanwhile", "it takes, s", "messages/s alone", "during", "during / alone (least to most)"]
    head += ["longest pause alone, ms", "during, ms", "most of all rounds, ms"]
    rows = []
    for name, each in found.items():
        slower = [one.during / one.alone for one in each]
        rows.append(
            [
                name,
                f"{median(one.seconds for one in each):.2f}",
                f"{median(one.alone for one in each):,.0f}",
                f"{median(one.during for one in each):,.0f}",
                spread(slower),
                f"{median(one.pause_alone for one in each) * 1000:.0f}",
                f"{median(one.pause_during for one in each) * 1000:.0f}",
                f"{max(one.pause_during for one in each) * 1000:.0f}",
            ]
        )
    return markdown(head, rows)
