from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, NoPermission, NotFound
from lakebackup.storage.local import LocalStorage
from lakebackup.store import lease as lease_module
from lakebackup.store.lease import Lease, break_lease, elapsed_s, held_leases, is_held
from lakebackup.store.proof import require_conditional_puts


class Clock:
    """A clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.time_s = 1_700_000_000.25  # some storages keep fractions of seconds

    def __call__(self) -> float:
        return self.time_s


class Flaky(LocalStorage):
    """A local storage that can fail or run a hook before its next put. Its files have times of `clock`."""

    failing = False
    next_put_hook: Callable[[], None] | None = None
    clock: Callable[[], float] = staticmethod(time.time)

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        if self.failing:
            raise EnvironmentProblem("the storage is away")
        hook, self.next_put_hook = self.next_put_hook, None
        if hook:
            hook()
        super().put(path, data, if_absent=if_absent)
        os.utime(f"{self.uri.removeprefix('file://')}/{path}", (self.clock(), self.clock()))


@pytest.fixture
def storage(tmp_path: Path) -> Flaky:
    storage = Flaky(str(tmp_path))
    require_conditional_puts(storage)  # done now, so that the next puts are those of a lease
    return storage


def eventually(condition: Callable[[], bool], within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "did not come true in time"
        threading.Event().wait(0.01)


def lost(lease: Lease) -> bool:
    try:
        lease.check()
    except Busy:
        return True
    return False


@pytest.fixture
def clock(storage: Flaky) -> Clock:
    """The clock of the storage and of all contenders."""
    storage.clock = clock = Clock()
    return clock


def test_one_holder_at_a_time(storage: Flaky, clock: Clock) -> None:
    with Lease.acquire(storage, "source", "first run", clock=clock) as lease:
        lease.check()
        clock.time_s += 20.5
        with pytest.raises(Busy, match=r"source is in use by first run, since \d{4}-.* UTC") as busy:
            Lease.acquire(storage, "source", "second run", clock=clock)
        assert "its lease ends in 40 s" in busy.value.hint
        Lease.acquire(storage, "other", "second run").release()
    with pytest.raises(Busy, match="released"):
        lease.check()
    Lease.acquire(storage, "source", "second run").release()


def test_a_holder_gives_up_before_others_may_take_over(storage: Flaky, clock: Clock) -> None:
    lease = Lease.acquire(storage, "s", "first", ttl_s=60, clock=clock)
    clock.time_s += 53.9
    lease.check()
    clock.time_s += 0.2
    with pytest.raises(Busy, match="could not be renewed"):
        lease.check()
    clock.time_s -= 50
    with pytest.raises(Busy):
        lease.check()  # once lost, always lost
    lease.release()


def test_the_time_that_a_put_takes_counts(storage: Flaky) -> None:
    start_s: list[float] = []
    storage.next_put_hook = lambda: start_s.append(elapsed_s())
    with Lease.acquire(storage, "s", "first", ttl_s=60) as lease:
        assert lease._deadline <= start_s[0] + 54, "the record's own time to live began before the put"


def test_a_renewal_prolongs_a_lease(storage: Flaky, clock: Clock) -> None:
    with Lease.acquire(storage, "s", "first", ttl_s=60, clock=clock) as lease:
        for _ in range(20):
            clock.time_s += 40
            lease.renew()
            with pytest.raises(Busy):
                Lease.acquire(storage, "s", "second", clock=clock)
    assert len(list(storage.list("leases/s/"))) <= 9, "old generations are cleaned away"


def test_a_thread_renews_a_lease(storage: Flaky) -> None:
    with Lease.acquire(storage, "s", "first", ttl_s=0.6) as lease:
        generations = 0

        def renewed() -> bool:
            nonlocal generations
            generations = max(int(entry.path[-17:-5]) for entry in storage.list("leases/s/"))
            return generations >= 4

        eventually(renewed)
        lease.check()


def test_a_holder_notices_that_renewals_fail(storage: Flaky) -> None:
    lease = Lease.acquire(storage, "s", "first", ttl_s=0.5)
    storage.failing = True
    eventually(lambda: lost(lease))
    with pytest.raises(Busy, match="could not be renewed"):
        lease.check()
    storage.failing = False
    Lease.acquire(storage, "s", "second", wait_s=10).release()
    lease.release()


def test_a_short_failure_is_survived(storage: Flaky) -> None:
    with Lease.acquire(storage, "s", "first") as lease:
        storage.failing = True
        with pytest.raises(EnvironmentProblem):
            lease.renew()
        storage.failing = False
        lease.renew()
        lease.check()


def test_a_failed_release_is_no_error(storage: Flaky, caplog: pytest.LogCaptureFixture) -> None:
    lease = Lease.acquire(storage, "s", "first")
    storage.failing = True
    lease.release()
    assert "stays until it expires" in caplog.text


def test_a_put_whose_answer_was_lost_counts(tmp_path: Path) -> None:
    class LosesAnswers(LocalStorage):
        def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
            super().put(path, data, if_absent=if_absent)
            super().put(path, data, if_absent=if_absent)  # as when a client library retries

    with Lease.acquire(LosesAnswers(str(tmp_path)), "s", "first") as lease:
        lease.renew()
        lease.check()


@pytest.mark.parametrize("turns", [1, 2, 30])
def test_a_contender_that_was_overtaken_does_not_hold(storage: Flaky, turns: int) -> None:
    """After it listed the leases, others held and released them until the number it wants was free again."""
    other_storage = LocalStorage(storage.uri.removeprefix("file://"))
    winners: list[Lease] = []

    def overtake() -> None:
        for turn in range(turns):
            lease = Lease.acquire(other_storage, "s", f"other {turn}")
            if turn < turns - 1:
                lease.release()
            else:
                winners.append(lease)

    storage.next_put_hook = overtake
    with pytest.raises(Busy, match=f"other {turns - 1}"):
        Lease.acquire(storage, "s", "late")
    winners[0].renew()
    winners[0].release()


def test_a_holder_that_slept_through_a_renewal_does_not_hold(storage: Flaky, clock: Clock) -> None:
    first = Lease.acquire(storage, "s", "first", clock=clock)
    other_storage = Flaky(storage.uri.removeprefix("file://"))
    other_storage.clock = clock
    winners: list[Lease] = []

    def overtake() -> None:
        clock.time_s += 3600
        for _ in range(20):
            Lease.acquire(other_storage, "s", "second", clock=clock).release()
        winners.append(Lease.acquire(other_storage, "s", "second", clock=clock))

    storage.next_put_hook = overtake
    with pytest.raises(Busy, match="taken over by second"):
        first.renew()
    winners[0].renew()
    winners[0].release()
    first.release()


def test_the_clock_of_a_holder_does_not_matter(storage: Flaky, clock: Clock) -> None:
    """It may be hours ahead or behind: the clock of the storage decides."""
    for hours in (12, -12):
        skewed_clock = Clock()
        skewed_clock.time_s += hours * 3600
        dead = Lease.acquire(storage, "s", "dead", clock=skewed_clock)
        with pytest.raises(Busy, match="dead"):
            Lease.acquire(storage, "s", "next", clock=clock)
        clock.time_s += 60
        Lease.acquire(storage, "s", "next", clock=clock).release()
        dead.release()


def test_when_the_clock_was_set_back_a_contender_waits_for_the_time_to_live(
    storage: Flaky, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dead = Lease.acquire(storage, "s", "dead", clock=clock)
    clock.time_s -= 12 * 3600
    start_s = clock.time_s

    def sleep(seconds: float) -> None:
        clock.time_s += seconds

    monkeypatch.setattr(lease_module.time, "sleep", sleep)
    Lease.acquire(storage, "s", "next", clock=clock).release()
    assert clock.time_s - start_s == pytest.approx(60, abs=0.5)
    assert "was set back since dead took its lease" in caplog.text
    dead.release()


def test_when_the_clock_was_set_back_a_renewed_lease_is_held(
    storage: Flaky, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = Lease.acquire(storage, "s", "alive", clock=clock)
    clock.time_s -= 12 * 3600
    alive._deadline = clock.time_s + 54  # the clock of its own machine is not set back

    def sleep(seconds: float) -> None:
        clock.time_s += seconds
        alive.renew()

    monkeypatch.setattr(lease_module.time, "sleep", sleep)
    with pytest.raises(Busy, match="in use by alive"):
        Lease.acquire(storage, "s", "next", clock=clock)
    alive.release()


def test_a_lease_of_an_earlier_version_holds_for_a_minute(storage: Flaky, clock: Clock) -> None:
    record = {
        "holder": "old",
        "token": "t",
        "state": "held",
        "since_ms": 0,
        "expires_ms": 1 << 62,
        "reason": "",
    }
    storage.put("leases/s/000000000001.json", json.dumps(record).encode())
    clock.time_s += 59
    with pytest.raises(Busy, match="in use by old"):
        Lease.acquire(storage, "s", "new", clock=clock)
    clock.time_s += 1
    Lease.acquire(storage, "s", "new", clock=clock).release()


def test_without_permission_to_write_the_local_clock_decides(
    storage: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lease.acquire(storage, "s", "first"):

        def refuse(*_: object, **__: object) -> None:
            raise NoPermission("this account may not write")

        with monkeypatch.context() as patch:
            patch.setattr(storage, "put", refuse)
            assert is_held(storage, "s")
            assert [name for name, _ in held_leases(storage)] == ["s"]
    assert not is_held(storage, "s")


def test_a_broken_lease_is_lost_to_its_holder(storage: Flaky) -> None:
    with pytest.raises(NotFound):
        break_lease(storage, "s", "nobody there")
    first = Lease.acquire(storage, "s", "first")
    assert break_lease(storage, "s", "host is gone").holder == "first"
    second = Lease.acquire(storage, "s", "second")
    with pytest.raises(Busy, match="taken over by second"):
        first.renew()
    second.release()
    third = Lease.acquire(storage, "s", "third")
    break_lease(storage, "s", "host is gone")
    with pytest.raises(Busy, match="host is gone"):
        third.renew()
    with pytest.raises(NotFound):
        break_lease(storage, "s", "twice")
    first.release()
    third.release()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"holder":"x"}', b'{"holder":"x","token":"t","state":"held","more":1}']
)
def test_a_damaged_lease_is_named(storage: Flaky, data: bytes) -> None:
    storage.put("leases/s/000000000001.json", data)
    with pytest.raises(Damaged, match=r"leases/s/000000000001\.json"):
        Lease.acquire(storage, "s", "first")


class TakingTurns(RuleBasedStateMachine):
    """Any order of acquiring, renewing, releasing, dying and waiting: at most one holder at any time."""

    contenders = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.storage = Flaky(self.folder.name)
        self.storage.clock = self.clock = Clock()
        self.leases: dict[int, Lease] = {}
        self.dead: list[Lease] = []

    @rule(contender=contenders)
    def acquire(self, contender: int) -> None:
        if contender in self.leases:
            return
        free = all(lost(lease) for lease in self.leases.values())
        try:
            self.leases[contender] = Lease.acquire(
                self.storage, "s", str(contender), ttl_s=100, clock=self.clock
            )
        except Busy:
            return
        assert free

    @rule(contender=contenders)
    def renew(self, contender: int) -> None:
        if contender in self.leases:
            holds = not lost(self.leases[contender])
            try:
                self.leases[contender].renew()
            except Busy:
                assert not holds

    @rule(contender=contenders)
    def release(self, contender: int) -> None:
        if contender in self.leases:
            self.leases.pop(contender).release()

    @rule(contender=contenders)
    def die(self, contender: int) -> None:
        if contender in self.leases:
            self.dead.append(self.leases.pop(contender))

    @rule(seconds=st.sampled_from([1, 30, 89, 91, 100, 1000]))
    def wait(self, seconds: int) -> None:
        self.clock.time_s += seconds

    @invariant()
    def at_most_one_holds(self) -> None:
        assert sum(not lost(lease) for lease in [*self.leases.values(), *self.dead]) <= 1

    def teardown(self) -> None:
        for lease in [*self.leases.values(), *self.dead]:
            lease.release()
        self.folder.cleanup()


TestTakingTurns = TakingTurns.TestCase
TestTakingTurns.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
