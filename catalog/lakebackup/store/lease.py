"""Leases with an expiry, so that two runs never work on one source (or commit to one catalog) at a time.

A lease is a series of small objects, `leases/<name>/<generation>.json`. The highest generation counts. To
take, renew, release or break a lease is always the same step: a conditional put of the next generation, which
only one contender can win. No compare-and-swap is needed, so a folder and any object storage will do.

No machine's clock decides when a lease has expired, because it may be wrong by hours. A holder measures its
time to live on a clock that is never set. A contender compares the newest generation's time in the storage
with the time of an object that it puts itself. Then it watches: a lease that is not renewed for its time to
live has expired.
"""

from __future__ import annotations

import json
import logging
import math
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Self

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, NoPermission, NotFound
from lakebackup.rules import layout
from lakebackup.storage import A_FEW, AlreadyExists, ObjectStat, Storage, working
from lakebackup.store.manifest import from_json
from lakebackup.store.proof import require_conditional_puts

# How many generations stay, the highest included. A listing is not a snapshot. If all older generations were
# deleted at once, a listing during a renewal could miss both the new generation and the one before it.
_KEPT_GENERATIONS = 8
# The holder gives up the lease this fraction of the time to live before others can take it over.
_MARGIN = 0.1
# By how much the time of an object can be too early in a storage that has times in whole seconds.
_SECOND_MS = 1000
# If a generation's age is below this (in s), its time lies in the future: the storage's clock was set back.
_SET_BACK_S = -5.0
# How long a request waits for an answer, as a fraction of the time to live. A renewal starts after a third of
# the time to live, so a request on a connection that the network silently dropped is repeated in time.
_MAX_SILENCE = 1 / 6
# After so many lost races for a lease that nobody holds, the cause is a server that refuses every put.
_MAX_LOST_RACES = 100

_log = logging.getLogger(__name__)


def elapsed_s() -> float:
    """Return the seconds on a clock that is never set, and that continues while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Record:
    """One generation of a lease. Times are in ms since 1970 UTC, by the holder's clock.

    Holders of the same name differ in their `token`. `ttl_ms` starts when the storage receives the
    generation. Only earlier versions of lakebackup read `expires_ms`.
    """

    holder: str
    token: str
    state: Literal["held", "released", "broken"]
    since_ms: int
    expires_ms: int
    reason: str = ""
    ttl_ms: int = 60_000


class Lease:
    """A lease that this process holds. A thread renews it after each third of its time to live."""

    def __init__(
        self, storage: Storage, name: str, holder: str, ttl_s: float, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self._storage = storage
        self._ttl_s = ttl_s
        self._clock = clock
        since_ms = int(time.time() * 1000)
        self._record = Record(holder, uuid.uuid4().hex, "held", since_ms, 0, ttl_ms=int(ttl_s * 1000))
        self._generation = 0
        self._deadline = 0.0  # on the clock
        self._loss = ""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_stopped, name=f"lease {name}", daemon=True)

    @classmethod
    def acquire(
        cls,
        storage: Storage,
        name: str,
        holder: str,
        *,
        ttl_s: float = 60.0,
        wait_s: float = 0.0,
        clock: Callable[[], float] = elapsed_s,
    ) -> Self:
        """Take the lease `name` for `ttl_s` seconds. A thread renews it in the background.

        Waits up to `wait_s` seconds for another holder, then raises Busy, which names the holder. If the
        storage's clock was set back, it always waits for the other lease's time to live. Raises
        EnvironmentProblem when the storage cannot decide who wins. `clock` returns elapsed seconds.
        """
        storage = storage.hurried(ttl_s * _MAX_SILENCE)
        require_conditional_puts(storage)
        lost_races = 0
        deadline = time.monotonic() + wait_s
        pause = 0.02
        watch = _Watch(storage, clock)
        while True:
            current = _current(storage, name)
            remaining_s = watch.remaining_s(*current) if current else 0.0
            if current is None or remaining_s <= 0:
                lease = cls(storage, name, holder, ttl_s, clock)
                generation = _generation(current[0].path) if current else 0
                if lease._try_generation(generation + 1):
                    lease._thread.start()
                    return lease
                lost_races += 1
                if lost_races > _MAX_LOST_RACES:
                    raise EnvironmentProblem(
                        f"{storage.server} refuses {layout.lease_path(name, generation + 1)} in "
                        f"{storage.uri} on the condition that there is no such object, and there is none.",
                        hint="Use a server with conditional puts (If-None-Match: *).",
                    )
            elif time.monotonic() >= deadline and not watch.clock_was_set_back:
                raise Busy(
                    f"{name} is in use by {current[1].holder}, since {_utc(current[1].since_ms)}.",
                    hint="Wait until that run has ended. If it has died, its lease ends in "
                    f"{math.ceil(remaining_s)} s; a running one renews it before that.",
                )
            else:
                end_s = remaining_s if watch.clock_was_set_back else max(0.0, deadline - time.monotonic())
                time.sleep(min(pause * random.uniform(0.5, 1.5), end_s))  # noqa: S311
                pause = min(pause * 1.5, 0.5)

    def check(self) -> None:
        """Raise Busy when the lease was lost or could not be renewed in time. Does no I/O."""
        if not self._loss and self._clock() >= self._deadline:
            self._loss = f"it could not be renewed within {self._ttl_s:g} s"
        if self._loss:
            raise Busy(
                f"{self._record.holder} lost its lease on {self.name}: {self._loss}.",
                hint="Nothing half done is visible. Run the same command again.",
            )

    def renew(self) -> None:
        """Hold the lease for another time to live. Raises Busy when it was lost.

        Also call it before a last step, because unlike `check` it asks the storage.
        """
        with self._lock:
            self.check()
            if not self._try_generation(self._generation + 1):
                current = _current(self._storage, self.name)
                winner = current[1] if current else None
                loss = f"taken over by {winner.holder}" if winner and winner.state == "held" else "taken over"
                self._loss = f"broken ({winner.reason})" if winner and winner.state == "broken" else loss
                self.check()

    def release(self) -> None:
        """Let others take the lease at once. Does nothing when it was lost before."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            if self._loss:
                return
            self._loss = "it was released"
            try:
                self._try_generation(self._generation + 1, state="released")
            except EnvironmentProblem as error:  # the work is done, and the lease expires
                _log.warning("The lease on %s stays until it expires: %s", self.name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _try_generation(self, generation: int, state: Literal["held", "released"] = "held") -> bool:
        """Try to put `generation` as the highest; returns whether this lease won it."""
        started = self._clock()
        expires_ms = int((time.time() + self._ttl_s) * 1000)
        record = replace(self._record, state=state, expires_ms=expires_ms)
        highest = _put_record(self._storage, self.name, generation, record)
        if highest is None:
            return False
        # Since the last listing others may have used and deleted this number. Then there is a higher one.
        if highest != generation:
            working.delete(self._storage, [layout.lease_path(self.name, generation)])
            return False
        self._generation, self._record = generation, record
        self._deadline = started + self._ttl_s * (1 - _MARGIN)
        return True

    def _renew_until_stopped(self) -> None:
        pause = self._ttl_s / 3
        while not self._stop.wait(pause):
            try:
                self.renew()
                pause = self._ttl_s / 3
            except Busy as busy:
                _log.warning("%s", busy)
                return
            except EnvironmentProblem as error:
                _log.warning("The lease on %s could not be renewed, trying again: %s", self.name, error)
                pause = self._ttl_s / 12


class _Watch:
    """Tells a contender when the lease of another holder has expired."""

    def __init__(self, storage: Storage, clock: Callable[[], float]) -> None:
        self.clock_was_set_back = False
        self._storage = storage
        self._clock = clock
        self._path = ""
        self._end = 0.0

    def remaining_s(self, newest: ObjectStat, record: Record) -> float:
        """Return the seconds until the lease expires if it is not renewed; 0 or less when nobody holds it."""
        if record.state != "held":
            return 0.0
        if newest.path != self._path:
            # A generation that appeared during the watch is new, whatever the storage's clock says.
            age_s = _age_s(newest, _storage_time_ms(self._storage)) if not self._path else 0.0
            self.clock_was_set_back = age_s < _SET_BACK_S
            if self.clock_was_set_back:
                _log.warning(
                    "The clock of %s was set back since %s took its lease. "
                    "Watching for %g s whether the lease is renewed.",
                    self._storage.server,
                    record.holder,
                    record.ttl_ms / 1000,
                )
            self._path = newest.path
            self._end = self._clock() + record.ttl_ms / 1000 - max(age_s, 0.0)
        return self._end - self._clock()


def break_lease(storage: Storage, name: str, reason: str) -> Record:
    """End a lease whose holder is known to be dead, and return its last record.

    A holder that is still alive notices at its next renewal. Until then two runs may both continue. Raises
    NotFound when nobody holds the lease.
    """
    while True:
        current = _current(storage, name)
        if current is None or current[1].state != "held":
            raise NotFound(
                f"No run holds the lease {name!r}.",
                hint="Nothing has to be broken. The message of a run that is refused names its lease, "
                "such as source-prod.",
            )
        newest, record = current
        now_ms = int(time.time() * 1000)
        broken = Record(record.holder, uuid.uuid4().hex, "broken", now_ms, now_ms, reason)
        if _put_record(storage, name, _generation(newest.path) + 1, broken) is not None:
            return record


def is_held(storage: Storage, name: str) -> bool:
    """Return whether a process holds the lease now, as far as another process can see."""
    current = _current(storage, name)
    return current is not None and _holds(*current, _storage_time_ms(storage))


def held_generation(storage: Storage, name: str) -> int | None:
    """Return the generation of a lease, which grows with each renewal; None when nobody holds the lease.

    Writes nothing, and so uses this machine's clock in place of the storage's.
    """
    current = _current(storage, name)
    if current is None or not _holds(*current, time.time() * 1000):
        return None
    return _generation(current[0].path)


def held_leases(storage: Storage) -> list[tuple[str, int]]:
    """Return the name and the start (ms since 1970 UTC) of each lease that is held now."""
    names = filter(None, map(layout.decode_name, storage.folders(f"{layout.LEASES_FOLDER}/")))
    leases = [(name, _current(storage, name)) for name in names]
    now_ms = _storage_time_ms(storage)
    return [(name, current[1].since_ms) for name, current in leases if current and _holds(*current, now_ms)]


def _holds(newest: ObjectStat, record: Record, now_ms: float) -> bool:
    return record.state == "held" and _age_s(newest, now_ms) * 1000 < record.ttl_ms


def _age_s(newest: ObjectStat, now_ms: float) -> float:
    """Return the least age, in seconds, that a generation can have when the storage's clock shows
    `now_ms`."""
    whole_seconds = newest.modified_ms % _SECOND_MS == 0
    return (now_ms - newest.modified_ms - (_SECOND_MS if whole_seconds else 0)) / 1000


def _storage_time_ms(storage: Storage) -> float:
    """Return the storage's time, in ms since 1970 UTC; this machine's if this account cannot write there."""
    try:
        storage.put(layout.STORAGE_CLOCK, b"")
    except NoPermission:
        return time.time() * 1000
    return storage.stat(layout.STORAGE_CLOCK).modified_ms


def _put_record(storage: Storage, name: str, generation: int, record: Record) -> int | None:
    """Put a generation. Return the highest one after that; None when another record has this number."""
    path = layout.lease_path(name, generation)
    try:
        storage.put(path, json.dumps(asdict(record)).encode(), if_absent=True)
    except AlreadyExists:
        # The answer to an earlier attempt of this put may have been lost, so the record may be our own.
        try:
            if _read_record(storage, path).token != record.token:
                return None
        except NotFound:
            return None
    generations = [
        _generation(stored_object.path) for stored_object in storage.list(layout.lease_folder(name))
    ]
    old_paths = [
        layout.lease_path(name, number)
        for number in generations
        if 0 < number <= generation - _KEPT_GENERATIONS
    ]
    working.delete(storage, old_paths)
    return max(generations, default=0)


def _current(storage: Storage, name: str) -> tuple[ObjectStat, Record] | None:
    """Return the object of the highest generation and its record; None when there is no generation."""
    while True:
        objects = (
            stored_object
            for stored_object in storage.list(layout.lease_folder(name))
            if _generation(stored_object.path)
        )
        newest = max(objects, key=lambda candidate: _generation(candidate.path), default=None)
        if newest is None:
            return None
        try:
            return newest, _read_record(storage, newest.path)
        except NotFound:  # meanwhile a newer generation was put and this one deleted
            continue


def _generation(path: str) -> int:
    number = path.rpartition("/")[2].removesuffix(".json")
    return int(number) if number.isascii() and number.isdigit() else 0


def _read_record(storage: Storage, path: str) -> Record:
    try:
        return from_json(Record, storage.get(path, length=A_FEW))
    except ValueError as error:
        raise Damaged(
            f"The lease {path} cannot be read: {error}.",
            hint="When no run is in progress, delete the folder that it is in.",
        ) from error


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
