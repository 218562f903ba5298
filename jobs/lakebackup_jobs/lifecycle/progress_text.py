"""What a run is doing, as one line of text.

The line names the phase and then only what is known: the amount done, its total and share, the rate, the time
since the phase began and the time that it will still take. A line that is too long loses its least important
parts first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebackup_jobs.runtime.terminal_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebackup_jobs.runtime.java.downloads import Download

RATE_WINDOW_S = 30.0
"""The rate is that of the last seconds, so that a fast or slow start does not distort what is left."""
_LEAST_RATE_S = 1.0
_PHASES: Mapping[str, str] = {
    "backup": "backing up",
    "check": "checking",
    "compact": "compacting",
    "export": "exporting",
    "follow": "following",
    "import": "importing",
    "log": "capturing",
    "look for ends of transactions": "looking for the ends of transactions in",
    "merge": "merging",
    "optimize": "optimizing",
    "prune": "pruning",
    "rebuild": "rebuilding",
    "restore": "restoring",
    "log truncate": "truncating",
    "verify": "verifying",
}
"""The stages of JSON events, as a person reads them."""
_OBJECTS: Mapping[str, str] = {"records": "topics", "events": "change logs", "messages": "queues"}
"""What a phase works on, by the unit that it counts. Other units are that themselves."""
# The parts that a narrow line loses, in this order.
_LOST_FIRST = ("extra", "rate", "elapsed", "amount", "left", "share")


@dataclass(slots=True)
class _Phase:
    """A phase of the work: what is counted, how much of it there is, and how much was done by when."""

    label: str
    since: float
    unit: str = ""
    total: int | None = None
    total_bytes: int | None = None
    done: int = 0
    done_bytes: int = 0
    samples: tuple[tuple[float, int], ...] = ()

    @property
    def by_bytes(self) -> bool:
        return self.total_bytes is not None or not self.unit

    @property
    def amount(self) -> int:
        return self.done_bytes if self.by_bytes else self.done

    @property
    def total_amount(self) -> int | None:
        """The total, as long as it holds: a phase may find more work than was planned."""
        total = self.total_bytes if self.by_bytes else self.total
        return total if total and total >= self.amount else None

    def update(self, done: int, done_bytes: int, now: float) -> None:
        self.done, self.done_bytes = done, done_bytes
        recent = [sample for sample in self.samples if sample[0] >= now - RATE_WINDOW_S]
        self.samples = (*recent, (now, self.amount)) if self.amount else ((now, 0),)

    def rate(self, now: float) -> float | None:
        """Of the amount a second; None before it is known, and when nothing was done for some time."""
        if not self.samples:
            return None
        (first_time, first_amount), (_, latest) = self.samples[0], self.samples[-1]
        is_known = now - first_time >= _LEAST_RATE_S and latest > first_amount
        return (latest - first_amount) / (now - first_time) if is_known else None

    def parts(self, now: float) -> dict[str, str]:
        """The parts behind the label, by name."""
        parts: dict[str, str] = {}
        total, rate = self.total_amount, self.rate(now)
        if self.amount or total:
            parts["amount"] = self._bytes(total) if self.by_bytes else self._count(total)
        if total:
            parts["share"] = f"{100 * self.amount // total}%"
        if self.by_bytes and self.unit and self.done:
            parts["extra"] = self._count(self.total if self.total and self.total >= self.done else None)
        elif not self.by_bytes and self.done_bytes:
            parts["extra"] = _size(self.done_bytes)
        if rate:
            parts["rate"] = f"{_size(round(rate))}/s" if self.by_bytes else f"{rate:,.0f} {self.unit}/s"
        parts["elapsed"] = f"{duration(now - self.since)} elapsed"
        if rate and total and total > self.amount:
            parts["left"] = f"{duration((total - self.amount) / rate)} left"
        return parts

    def _count(self, total: int | None) -> str:
        return f"{self.done:,}{f' of {total:,}' if total else ''} {self.unit}"

    def _bytes(self, total: int | None) -> str:
        done = _size(self.done_bytes)
        if total is None:
            return done
        number, _, unit = done.partition(" ")
        total_size = _size(total)
        return f"{number if total_size.endswith(f' {unit}') else done} of {total_size}"


class ProgressText:
    """The line of a run, which reports here what it does. `clock`: seconds, such as `time.monotonic`.

    Of what happens at once a download comes first, then what is waited for, then the stage.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage: _Phase | None = None
        self._waiting: _Phase | None = None
        self._download: _Phase | None = None

    def start(self, total: int | None, total_bytes: int | None, what: str, unit: str) -> None:
        """A stage begins, as of `Reporter.start`."""
        label = " ".join(word for word in (_PHASES.get(what, what), _OBJECTS.get(unit, unit)) if word)
        self._stage = _Phase(label, self._clock(), unit, total, total_bytes)
        self._waiting = None

    def update(self, done: int, done_bytes: int) -> None:
        """How much of the stage is done. The first amount ends a wait."""
        if self._stage is not None:
            self._stage.update(done, done_bytes, self._clock())
            if done or done_bytes:
                self._waiting = None

    def wait(self, what: str) -> None:
        """The run waits for something of unknown duration."""
        self._waiting = _Phase(what, self._clock())

    def download(self, state: Download | None) -> None:
        """A download begins or continues, or ended (None)."""
        if state is None:
            self._download = None
            return
        if self._download is None:
            self._download = _Phase("", self._clock(), "files", state.total_files, state.total_bytes)
        self._download.label = f"downloading {state.name}"
        self._download.update(state.files, state.bytes, self._clock())

    @property
    def is_downloading(self) -> bool:
        return self._download is not None

    @property
    def has_total(self) -> bool:
        """Whether it is known how much there is to do; endless runs have no total."""
        phase = self._phase
        return phase is not None and phase.total_amount is not None

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1; None where the total is not known."""
        phase = self._phase
        return phase.amount / phase.total_amount if phase is not None and phase.total_amount else None

    def text(self, width: int | None = None) -> str:
        """The line, in at most `width` columns of a terminal."""
        phase = self._phase
        if phase is None:
            return ""
        label, parts = visible(phase.label), phase.parts(self._clock())
        order = [name for name in ("amount", "share", "extra", "rate", "elapsed", "left") if name in parts]
        line = _joined(label, [parts[name] for name in order])
        if width is None:
            return line
        from rich.cells import cell_len, set_cell_size

        for name in _LOST_FIRST:
            if cell_len(line) <= width:
                return line
            order = [part for part in order if part != name]
            line = _joined(label, [parts[part] for part in order])
        return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"

    @property
    def _phase(self) -> _Phase | None:
        return self._download or self._waiting or self._stage


def _joined(label: str, parts: list[str]) -> str:
    return f"{label}: {', '.join(parts)}" if parts else label


def duration(seconds: float) -> str:
    """A time span for people, such as `14 s`, `2 min 5 s` or `3 h 20 min`."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    if rounded < 86_400:
        return f"{rounded // 3600} h {rounded % 3600 // 60} min"
    return f"{rounded // 86_400} d {rounded % 86_400 // 3600} h"


def _size(size: int) -> str:
    from rich.filesize import decimal

    return decimal(size)
