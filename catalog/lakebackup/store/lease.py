"""Leases with an expiry, so that two runs never work on one source (or commit to one catalog) at a time.

A lease is a row of small objects, `leases/<name>/<generation>.json`; the highest generation counts. Taking,
renewing, releasing and breaking are all one thing: a conditional put of the next generation, which one
contender alone can win. No compare-and-swap is needed, so a folder and any object storage will do.

No machine's clock decides when a lease has run out, for it may be wrong by hours. A holder counts its time
to live on a clock that is never set. A contender compares the newest generation's time in the storage with
that of an object which it puts itself, and then watches: a lease that is not renewed for its time to live has
run out.
"""

from __future__ import annotations

import json
import logging
import math
import random
import threading
import time
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Self

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, NoPermission, NotFound
from lakebackup.rules import layout
from lakebackup.storage import A_FEW, AlreadyExists, working
from lakebackup.store.manifest import from_json
from lakebackup.store.proof import require_conditional_puts

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup.storage import ObjectStat, Storage

# Generations kept behind the highest. A listing is not a snapshot: if all older ones were deleted at once, a
# listing during a renewal could miss both the new generation and the one before.
_KEPT = 8
# The holder gives up this part of the time to live before others may take over.
_MARGIN = 0.1
# What a storage that has times in whole seconds leaves out.
_SECOND_MS = 1000
# A generation that is younger than this (s) is of a time that the storage's clock has not reached again.
_SET_BACK_S = -5.0
# So long a request waits for an answer, as a part of the time to live: a renewal begins after a third of it,
# and one on a connection that the network silently dropped is repeated in time.
_SILENCE = 1 / 6
# Who loses so many races for a lease that nobody holds has no contenders, but a server that takes nothing.
_MOST_LOST = 100

_log = logging.getLogger(__name__)


def elapsed_s() -> float:
    """Seconds of a clock that is never set, and that runs on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Record:
    """One generation. Times are in ms since 1970 UTC, by the holder's clock. Holders of one name differ in
    their `token`.

    `expires_ms` is for earlier versions; `ttl_ms` counts from when the storage received the generation.
    """

    holder: str
    token: str
    state: Literal["held", "released", "broken"]
    since_ms: int
    expires_ms: int
    reason: str = ""
    ttl_ms: int = 60_000


class Lease:
    """A lease that is held. A thread renews it every third of its time to live, until `release`."""

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
        self._lost = ""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease {name}", daemon=True)

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
        """Take the lease `name` for `ttl_s` seconds, renewed in the background.

        Waits up to `wait_s` seconds for another holder to be done, then raises Busy, which names the holder.
        Where the storage's clock was set back, it waits for the other's time to live in any case.
        Raises EnvironmentProblem when the storage cannot tell who won. `clock` gives seconds that pass.
        """
        storage = storage.hurried(ttl_s * _SILENCE)
        require_conditional_puts(storage)
        lost = 0
        give_up = time.monotonic() + wait_s
        pause = 0.02
        watch = _Watch(storage, clock)
        while True:
            current = _current(storage, name)
            remaining_s = watch.remaining_s(*current) if current else 0.0
            if current is None or remaining_s <= 0:
                lease = cls(storage, name, holder, ttl_s, clock)
                generation = _generation(current[0].path) if current else 0
                if lease._put(generation + 1):
                    lease._thread.start()
                    return lease
                lost += 1
                if lost > _MOST_LOST:
                    raise EnvironmentProblem(
                        f"{storage.server} refuses {layout.lease_path(name, generation + 1)} in "
                        f"{storage.uri} on the condition that there is no such object, and there is none.",
                        hint="Use a server with conditional puts (If-None-Match: *).",
                    )
            elif time.monotonic() >= give_up and not watch.clock_was_set_back:
                raise Busy(
                    f"{name} is in use by {current[1].holder}, since {_utc(current[1].since_ms)}.",
                    hint="Wait until that run has ended. If it has died, its lease ends in "
                    f"{math.ceil(remaining_s)} s; a running one renews it before that.",
                )
            else:
                end_s = remaining_s if watch.clock_was_set_back else max(0.0, give_up - time.monotonic())
                time.sleep(min(pause * random.uniform(0.5, 1.5), end_s))  # noqa: S311
                pause = min(pause * 1.5, 0.5)

    def check(self) -> None:
        """Raise Busy when the lease was lost or could not be renewed in time; cheap, no input or output."""
        if not self._lost and self._clock() >= self._deadline:
            self._lost = f"it could not be renewed within {self._ttl_s:g} s"
        if self._lost:
            raise Busy(
                f"{self._record.holder} lost its lease on {self.name}: {self._lost}.",
                hint="Nothing half done is visible. Run the same command again.",
            )

    def renew(self) -> None:
        """Hold it for another time to live; Busy when it was lost. Also the sure check before a last step."""
        with self._lock:
            self.check()
            if not self._put(self._generation + 1):
                current = _current(self._storage, self.name)
                other = current[1] if current else None
                how = f"taken over by {other.holder}" if other and other.state == "held" else "taken over"
                self._lost = f"broken ({other.reason})" if other and other.state == "broken" else how
                self.check()

    def release(self) -> None:
        """Give it to others at once; no error when it was lost before."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            if self._lost:
                return
            self._lost = "it was released"
            try:
                self._put(self._generation + 1, state="released")
            except EnvironmentProblem as error:  # the work is done; the lease ends by itself
                _log.warning("The lease on %s stays until it expires: %s", self.name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _put(self, generation: int, state: Literal["held", "released"] = "held") -> bool:
        """Try to make `generation` ours and the highest."""
        started = self._clock()
        expires_ms = int((time.time() + self._ttl_s) * 1000)
        record = replace(self._record, state=state, expires_ms=expires_ms)
        highest = _put(self._storage, self.name, generation, record)
        if highest is None:
            return False
        # The number may have been used and cleaned away since we looked: then a higher one is there.
        if highest != generation:
            working.delete(self._storage, [layout.lease_path(self.name, generation)])
            return False
        self._generation, self._record = generation, record
        self._deadline = started + self._ttl_s * (1 - _MARGIN)
        return True

    def _keep(self) -> None:
        pause = self._ttl_s / 3
        while not self._stop.wait(pause):
            try:
                self.renew()
                pause = self._ttl_s / 3
            except Busy as lost:
                _log.warning("%s", lost)
                return
            except EnvironmentProblem as error:
                _log.warning("The lease on %s could not be renewed, trying again: %s", self.name, error)
                pause = self._ttl_s / 12


class _Watch:
    """Tells a contender when a lease that another holds has run out."""

    def __init__(self, storage: Storage, clock: Callable[[], float]) -> None:
        self.clock_was_set_back = False
        self._storage = storage
        self._clock = clock
        self._path = ""
        self._end = 0.0

    def remaining_s(self, newest: ObjectStat, record: Record) -> float:
        """How long the lease holds if it is not renewed, in seconds; 0 or less: nobody holds it."""
        if record.state != "held":
            return 0.0
        if newest.path != self._path:
            # One that came while we were watching is new, whatever the storage's clock says.
            age_s = _age_s(newest, _now(self._storage)) if not self._path else 0.0
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
    """End a lease whose holder is known to be dead; returns what it was. NotFound when it is not held.

    A holder that is alive after all notices at its next renewal; until then two runs may both continue.
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
        if _put(storage, name, _generation(newest.path) + 1, broken) is not None:
            return record


def is_held(storage: Storage, name: str) -> bool:
    """Whether somebody holds the lease now, as far as another process can see."""
    current = _current(storage, name)
    return current is not None and _holds(*current, _now(storage))


def held_generation(storage: Storage, name: str) -> int | None:
    """The generation of a lease that is held now, which grows with each renewal; None when it is not held.

    Nothing is written: this machine's clock stands for the storage's.
    """
    current = _current(storage, name)
    if current is None or not _holds(*current, time.time() * 1000):
        return None
    return _generation(current[0].path)


def held(storage: Storage) -> list[tuple[str, int]]:
    """Name and beginning (ms since 1970 UTC) of every lease that somebody holds now."""
    names = filter(None, map(layout.decode_name, storage.folders(f"{layout.LEASES_FOLDER}/")))
    leases = [(name, _current(storage, name)) for name in names]
    now_ms = _now(storage)
    return [(name, current[1].since_ms) for name, current in leases if current and _holds(*current, now_ms)]


def _holds(newest: ObjectStat, record: Record, now_ms: float) -> bool:
    return record.state == "held" and _age_s(newest, now_ms) * 1000 < record.ttl_ms


def _age_s(newest: ObjectStat, now_ms: float) -> float:
    """The least age that a generation can have at a time of the storage's clock, in seconds."""
    whole_seconds = newest.modified_ms % _SECOND_MS == 0
    return (now_ms - newest.modified_ms - (_SECOND_MS if whole_seconds else 0)) / 1000


def _now(storage: Storage) -> float:
    """The time by the storage's clock, in ms since 1970 UTC.

    Where this account may not write there, this machine's clock stands for it.
    """
    try:
        storage.put(layout.STORAGE_CLOCK, b"")
    except NoPermission:
        return time.time() * 1000
    return storage.stat(layout.STORAGE_CLOCK).modified_ms


def _put(storage: Storage, name: str, generation: int, record: Record) -> int | None:
    """The highest generation that is there after a put of this one; None when another has this number."""
    path = layout.lease_path(name, generation)
    try:
        storage.put(path, json.dumps(asdict(record)).encode(), if_absent=True)
    except AlreadyExists:
        # A put whose answer was lost on the way may be tried again by us or by a client library.
        try:
            if _read(storage, path).token != record.token:
                return None
        except NotFound:
            return None
    found = [_generation(one.path) for one in storage.list(layout.lease_folder(name))]
    old = [layout.lease_path(name, one) for one in found if 0 < one <= generation - _KEPT]
    working.delete(storage, old)
    return max(found, default=0)


def _current(storage: Storage, name: str) -> tuple[ObjectStat, Record] | None:
    """The object of the highest generation and its record; None when there never was one."""
    while True:
        objects = (one for one in storage.list(layout.lease_folder(name)) if _generation(one.path))
        newest = max(objects, key=lambda one: _generation(one.path), default=None)
        if newest is None:
            return None
        try:
            return newest, _read(storage, newest.path)
        except NotFound:  # a newer one came and this one went
            continue


def _generation(path: str) -> int:
    number = path.rpartition("/")[2].removesuffix(".json")
    return int(number) if number.isascii() and number.isdigit() else 0


def _read(storage: Storage, path: str) -> Record:
    try:
        return from_json(Record, storage.get(path, length=A_FEW))
    except ValueError as error:
        raise Damaged(
            f"The lease {path} cannot be read: {error}.",
            hint="When no run is in progress, delete the folder that it is in.",
        ) from error


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
