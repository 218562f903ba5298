"""Any life of a compacted topic: written to, cleaned by the broker, backed up, compacted, pruned, killed.

After every step the newest restore point gives the latest value of each key as the last backup saw it, and
each earlier one gives what was true at its own instant, or is refused after a prune that no policy and no
hold kept from it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.support import kafka_truth as truth
from tests.support.compacted import CLEANED, FILLER, Latest, clean, latest, put, stored
from tests.support.lives import dying, live
from tests.support.runs import Lab

from lakebackup.errors import Refused
from lakebackup.rows.upkeep import Hold, Policy
from lakebackup.store.writer import CatalogWriter

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 2
KEYS = [b"", b"a", b"b", b"c", b"a key of some length"]
# Long enough for two backups one after the other, short enough to wait for.
TOMBSTONES_STAY_MS = 4_000

# A place in a list whose length depends on when a run was killed: drawn from the list itself, a failing life
# could not be replayed. For the same reason no rule has a precondition.
picks = st.integers(0, 1000)
pairs = st.lists(
    st.tuples(
        st.integers(0, PARTITIONS - 1),
        st.sampled_from(KEYS),
        st.none() | st.sampled_from([b"", b"v", b"x" * 500]) | st.binary(max_size=6),
    ),
    min_size=1,
    max_size=25,
)


class Compacted(RuleBasedStateMachine):
    """One destination and one topic."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.lab = Lab(lab.spark, lab.bootstrap, self.folder / "backups", lab._empty_catalog)
        self.topic = f"compacted-model-{uuid4().hex[:8]}"
        self.now: Latest = {}
        self.kept: dict[int, Latest] = {}
        self.promised: set[int] = set()  # ends of backups, in ms, that no prune may touch
        self.held: dict[int, str] = {}
        self.redundancy: int | None = None

    @initialize()
    def begin(self) -> None:
        settings = {**CLEANED, "delete.retention.ms": str(TOMBSTONES_STAY_MS), "retention.ms": "-1"}
        named = {key.replace(".", "_"): value for key, value in settings.items()}
        truth.create_topic(self.lab.bootstrap, self.topic, PARTITIONS, **named)
        self.lab.make_catalog()

    @rule(wanted=pairs)
    def write(self, wanted: list[tuple[int, bytes, bytes | None]]) -> None:
        put(self.lab.bootstrap, self.topic, wanted)
        for partition, key, value in wanted:
            if value is None:
                self.now.pop((partition, key), None)
            else:
                self.now[partition, key] = value

    @rule(tombstones=st.booleans())
    def broker_cleans(self, tombstones: bool) -> None:
        clean(
            self.lab.bootstrap,
            self.topic,
            PARTITIONS,
            gone=(lambda r: r.value is None) if tombstones else None,
        )

    @rule(full=st.integers(0, 5), anew=st.integers(0, 2), growth=st.sampled_from([1.0, 2.0, 100.0]))
    def backup(self, full: int, anew: int, growth: float) -> None:
        self._took(self._take(full == 5, anew == 2, growth))
        self.newest_is_right()

    @rule()
    def compact(self) -> None:
        if self.kept:
            self.lab.compact()
        self.newest_is_right()

    @rule(step=st.integers(1, 22), compaction=st.booleans())
    def killed(self, step: int, compaction: bool) -> None:
        before = self._ends()
        with dying(self.lab.folder, step):
            if compaction and self.kept:
                self.lab.compact()
            else:
                self._take(full=False, anew=True, growth=2.0)
        for end_ts in self._ends() - before:  # it died behind the row that counts, or not at all
            self._took(end_ts)
        self.newest_is_right()

    @rule(fulls=st.sampled_from([None, 1, 2]))
    def policy(self, fulls: int | None) -> None:
        if fulls != self.redundancy:
            self._writer().tell(
                Policy(source="lab", at=_now(), actor="me", redundancy=fulls, removed=fulls is None)
            )
            self.redundancy = fulls

    @rule(which=picks)
    def hold(self, which: int) -> None:
        """Hold a backup that is there, or release it."""
        if not self.promised:
            return
        end_ts = sorted(self.promised)[which % len(self.promised)]
        point = "SELECT backup_id FROM restore_points WHERE covers_from < {0} AND {0} <= covers_to"
        held = self.held.pop(end_ts, None)
        one = held or self.lab.sql(point.format(end_ts))[0]["backup_id"]
        self._writer().tell(
            Hold(backup_id=one, source="lab", at=_now(), actor="me", reason="why", released=held is not None)
        )
        if not held:
            self.held[end_ts] = one

    @rule()
    def prune(self) -> None:
        if not self.kept:
            return
        fulls = sorted(
            row["end_ts"] for row in self.lab.sql("SELECT end_ts FROM backups WHERE kind = 'full'")
        )
        since = fulls[-min(self.redundancy, len(fulls))] if self.redundancy else max(self.kept)
        self.lab.prune()
        self.promised = {end for end in self.promised if end >= since or end in self.held}
        self.newest_is_right()

    @rule(which=picks)
    def earlier_is_right(self, which: int) -> None:
        if not self.kept:
            return
        end_ts = sorted(self.kept)[which % len(self.kept)]
        try:
            found = self._restored(end_ts)
        except Refused:
            assert end_ts not in self.promised
        else:
            assert found == self.kept[end_ts]

    def newest_is_right(self) -> None:
        if self.kept:
            assert self._restored(None) == self.kept[max(self.kept)]

    def _took(self, end_ts: int) -> None:
        self.kept[end_ts] = dict(self.now)
        self.promised.add(end_ts)

    def _take(self, full: bool, anew: bool, growth: float) -> int:
        mode = "full" if full else "auto"
        done = self.lab.backup(self.topic, mode=mode, new_generation=anew, growth=growth)
        return int(done["end_ts"])

    def _ends(self) -> set[int]:
        return {row["end_ts"] for row in self.lab.sql("SELECT end_ts FROM backups")}

    def _writer(self) -> CatalogWriter:
        return CatalogWriter.open(None, str(self.lab.folder))

    def _restored(self, to_ts: int | None) -> Latest:
        out = Path(tempfile.mkdtemp(dir=self.folder))
        self.lab.restore(self.topic, to_ts=to_ts, target=f"dir:{out}")
        found = latest(stored(out / "topics" / self.topic))
        return {place: value for place, value in found.items() if place[1] != FILLER}

    def teardown(self) -> None:
        truth.delete_topic(self.lab.bootstrap, self.topic)


def _now() -> int:
    return time.time_ns() // 1000


@pytest.mark.long
def test_many_lives(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Compacted(lab, tmp_path), 25, 30)
