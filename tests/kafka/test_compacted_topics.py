"""Compacted topics: generations, `lakebackup compact` and any life of one, on a broker that compacts."""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.compacted import CLEANED, FILLER, Latest, clean, latest, put, stored
from tests.support.faults import Killed, Steps, expire_leases, watched
from tests.support.kafka_truth import Record
from tests.support.lives import dying, live
from tests.support.runs import Lab, now_ms

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.rows.upkeep import Hold, Policy
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


Make = Callable[..., str]


def restored(lab: Lab, name: str, tmp_path: Path, **changes: Any) -> Latest:
    """The latest of each key as a restore brings it back, without the test's own filler."""
    out = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
    lab.restore(name, target=f"dir:{out}", **changes)
    return without_filler(latest(stored(out / "topics" / name)))


def without_filler(found: Latest) -> Latest:
    return {place: value for place, value in found.items() if place[1] != FILLER}


def in_kafka(lab: Lab, name: str) -> Latest:
    return without_filler(latest(r for _, r in truth.read(lab.bootstrap, name)))


def generations(lab: Lab, name: str) -> list[int]:
    """Of each backup that holds a topic, in order."""
    found = lab.sql(
        "SELECT s.generation FROM scopes s JOIN backups b ON b.backup_id = s.backup_id "
        f"WHERE s.scope = '{name}' ORDER BY b.number",
    )
    return [row["generation"] for row in found]


def test_a_key_deleted_between_two_backups_does_not_come_back(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("deleted", partitions=2, **CLEANED, **{"delete.retention.ms": "300"})
    put(lab.bootstrap, name, [(p, b"k%d" % i, b"v") for p in range(2) for i in range(5)])
    lab.backup(name)
    put(lab.bootstrap, name, [(0, b"k1", None), (1, b"k2", b"new")])
    clean(lab.bootstrap, name, 2, gone=lambda r: (r.partition, r.key) == (0, b"k1"))
    done = lab.backup(name)
    assert (done["kind"], done["generations"]) == (
        "differential",
        [{"topic": name, "generation": 1, "because": "tombstones"}],
    )
    expected = {(p, b"k%d" % i): b"v" for p in range(2) for i in range(5)} | {(1, b"k2"): b"new"}
    del expected[0, b"k1"]
    assert restored(lab, name, tmp_path) == in_kafka(lab, name) == expected
    assert generations(lab, name) == [0, 1]


@pytest.mark.long
def test_compact(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("compact", partitions=2, **{"cleanup.policy": "compact"})
    plain = topic("plain")
    before: dict[str, Any] = {}
    seen: dict[int, Latest] = {}
    for cycle in range(3):
        put(lab.bootstrap, name, [(i % 2, b"k%d" % (i % 7), b"%d-%d" % (cycle, i)) for i in range(50)])
        put(lab.bootstrap, plain, [(0, b"k", b"v")])
        before = lab.backup(name, plain, growth=100)
        seen[before["end_ts"]] = in_kafka(lab, name)
    expected = in_kafka(lab, name)
    told = lab.compact(dry_run=True)
    assert [t["topic"] for t in told["topics"]] == [name]
    assert (told["entries"], len(lab.sql("SELECT * FROM backups"))) == (150, 3)

    done = lab.compact()
    assert (done["entries"], done["kept_entries"], done["kept_files"]) == (150, 14, 2)
    assert done["left_out"] == [{"topic": plain, "because": "its cleanup.policy does not include compact"}]
    assert restored(lab, name, tmp_path) == expected
    assert restored(lab, name, tmp_path, to_ts=before["end_ts"]) == expected
    earlier = sorted(seen)[1]  # what was compacted still answers for its own time
    assert restored(lab, name, tmp_path, to_ts=earlier) == seen[earlier] != expected
    (backup,) = lab.sql("SELECT * FROM backups WHERE number = 4")
    assert (backup["kind"], backup["end_ts"], backup["chain_position"]) == (
        "differential",
        before["end_ts"],
        3,
    )
    assert backup["note"] == f"compaction of {before['backup_id']}"
    assert lab.compact(name)["left_out"] == [
        {"topic": name, "because": "it has no new records since its last compaction"}
    ]

    # The next backup goes on where the one before the compaction ended, in the new generation.
    put(lab.bootstrap, name, [(0, b"k0", None), (1, b"new", b"1")])
    after = lab.backup(name, growth=100)
    assert (after["kind"], after["entries"], after["parent"]) == ("differential", 2, done["backup_ids"][0])
    assert restored(lab, name, tmp_path) == in_kafka(lab, name)
    assert generations(lab, name) == [0, 0, 0, 1, 1]
    checked = lab.verify(mode="decode")
    assert (checked["missing"], checked["damaged"], checked["orphan"]) == (0, 0, 0)
    assert [p.name for p in lab.folder.rglob("plan/*")] == []

    # Offsets and bytes of what is kept are the topic's own.
    kept = lab.sql(
        f"SELECT path FROM files WHERE scope = '{name}' AND generation = 1 AND added_in = 4 ORDER BY path",
    )
    found = [
        (r["partition"], r["offset"], r["key"], r["value"], r["timestamp"])
        for row in kept
        for r in fastavro.reader(io.BytesIO((lab.folder / row["path"]).read_bytes()))
    ]
    true = {(r.partition, at): (r.key, r.value, r.timestamp) for at, r in truth.read(lab.bootstrap, name)}
    assert [place[:2] for place in found] == sorted(place[:2] for place in found)
    assert all(true[p, at] == (key, value, ts) for p, at, key, value, ts in found)

    # A prune deletes the files of the older generation, and none besides.
    expected = in_kafka(lab, name)
    assert lab.prune()["files"] == 6
    left = lab.sql("SELECT scope, generation, count(*) AS files FROM files GROUP BY ALL ORDER BY scope")
    assert left == [
        {"scope": name, "generation": 1, "files": 4},
        {"scope": plain, "generation": 0, "files": 3},
    ]
    assert restored(lab, name, tmp_path) == expected


@pytest.mark.long
def test_tombstones_go_when_they_are_old_and_stay_until_then(lab: Lab, topic: Make, tmp_path: Path) -> None:
    hour = 3_600_000
    name = topic("tombstones", **{"cleanup.policy": "compact", "delete.retention.ms": str(hour)})
    long_ago = now_ms() - 2 * hour
    truth.produce(
        lab.bootstrap,
        name,
        [
            Record(0, b"old", b"v", (), long_ago),
            Record(0, b"old", None, (), long_ago),
            Record(0, b"young", b"v", (), long_ago),
            Record(0, b"young", None, (("why", b"left"),), now_ms()),
            Record(0, b"back", None, (), long_ago),
            Record(0, b"back", b"again", (), long_ago),
        ],
    )
    lab.backup(name)
    assert lab.compact()["kept_entries"] == 2
    out = tmp_path / "kept"
    lab.restore(name, target=f"dir:{out}")
    assert [(r.key, r.value) for r in stored(out / "topics" / name)] == [
        (b"young", None),
        (b"back", b"again"),
    ]


@pytest.mark.long
def test_a_gap_in_what_was_compacted_is_one_in_the_compaction(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("gap", **{"cleanup.policy": "compact,delete"})
    put(lab.bootstrap, name, [(0, b"k", b"%d" % i) for i in range(10)])
    lab.backup(name)
    put(lab.bootstrap, name, [(0, b"k", b"%d" % i) for i in range(10)])
    truth.delete_records(lab.bootstrap, name, {0: 15})
    lab.backup(name, on_gap="continue", growth=100)
    lab.compact()
    with pytest.raises(Refused, match="offsets from 10 to 15 were deleted"):
        restored(lab, name, tmp_path)
    assert restored(lab, name, tmp_path, allow_gaps=True) == {(0, b"k"): b"9"}


@pytest.mark.long
def test_killed_a_compaction_leaves_all_restorable_and_the_next_is_whole(
    lab: Lab, topic: Make, tmp_path: Path
) -> None:
    """With rows of files that no backup has."""
    name = topic("killed", partitions=2, **{"cleanup.policy": "compact"})
    put(lab.bootstrap, name, [(i % 2, b"k%d" % (i % 5), b"%d" % i) for i in range(40)])
    lab.backup(name)
    expected = in_kafka(lab, name)
    dying = watched(tmp_path / "steps", kill_at="commit backups")
    with dying as steps, suppress(Killed, EnvironmentProblem):
        lab.compact()
    assert steps.dead
    expire_leases(lab.folder)
    assert restored(lab, name, tmp_path) == expected
    assert generations(lab, name) == [0]
    assert lab.compact()["topics"]
    assert generations(lab, name) == [0, 1]
    assert restored(lab, name, tmp_path) == expected


@pytest.mark.long
@pytest.mark.parametrize("what", ["new generation", "compaction"])
def test_killed_at_every_step_a_complete_generation_is_restorable(
    what: str, lab: Lab, topic: Make, tmp_path: Path, empty_catalog: Path
) -> None:
    name = topic("killed", partitions=2, **CLEANED)
    put(lab.bootstrap, name, [(i % 2, b"k%d" % (i % 5), b"%d" % i) for i in range(40)])
    lab.backup(name)
    put(lab.bootstrap, name, [(0, b"k0", None), (1, b"more", b"v")])
    clean(lab.bootstrap, name, 2)
    lab.backup(name, growth=100)
    expected = in_kafka(lab, name)

    def run(kill_at: int | str | None) -> tuple[Lab, Steps]:
        # What a killed run leaves takes sequence numbers, which would be steps of the next.
        other = Lab(lab.spark, lab.bootstrap, tmp_path / str(kill_at), empty_catalog)
        shutil.copytree(lab.folder, other.folder)
        folder = tmp_path / f"steps-{kill_at}"
        with watched(folder, kill_at=kill_at) as steps, suppress(Killed, EnvironmentProblem):
            if what == "compaction":
                other.compact()
            else:
                other.backup(name, new_generation=True)
        expire_leases(other.folder)
        where = f"killed before {kill_at}" if steps.dead else "not killed"
        assert restored(other, name, tmp_path) == expected, where
        return other, steps

    whole, steps = run(None)
    taken = steps.taken()
    assert {"put data", "put part", "put manifest.json", "commit files", "commit backups"} <= set(taken)
    for point in [*range(1, len(taken)), "put lease source #3"]:
        assert run(point)[1].dead, point
    whole.backup(name, growth=100)
    assert restored(whole, name, tmp_path) == expected


def test_the_command_line(lab: Lab, topic: Make, cli: Commands) -> None:
    name, plain = topic("cli", **{"cleanup.policy": "compact"}), topic("plain")
    for one in (name, plain):
        put(lab.bootstrap, one, [(0, b"k", b"%d" % i) for i in range(5)])
    lab.make_catalog()
    where = str(lab.folder)
    there = ("--repo", where)
    backup = ["backup", "topics", name, plain, "--repo", where, "--bootstrap-server", lab.bootstrap]
    backup += ["--groups", "none"]
    cli.told(*backup)
    told = cli.told(*backup, "--new-generation", "--dry-run")
    assert told["generations"] == [{"topic": name, "generation": 1, "because": "asked"}]
    told = cli.told("compact", *there, "--dry-run")
    assert (told["dry_run"], told["entries"], [t["topic"] for t in told["topics"]]) == (True, 5, [name])
    assert cli.told("compact", *there)["kept_entries"] == 1
    assert "it has no new records since" in cli.out("compact", name, *there)
    assert "--all-keyed" in cli.fails(5, "compact", plain, *there)
    cli.fails(3, "compact", "other", *there)
    cli.fails(3, "compact", "--repo", f"{where}/nowhere")
    with Lease.acquire(
        open_storage(where), f"source-{lab.sql('SELECT source FROM backups')[0]['source']}", "me"
    ):
        cli.fails(8, "compact", *there)


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

    @rule(full=st.integers(0, 5), restart=st.integers(0, 2), growth=st.sampled_from([1.0, 2.0, 100.0]))
    def backup(self, full: int, restart: int, growth: float) -> None:
        self._took(self._take(full == 5, restart == 2, growth))
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
                self._take(full=False, restart=True, growth=2.0)
        for end_ts in self._ends() - before:  # it died behind the row that counts, or not at all
            self._took(end_ts)
        self.newest_is_right()

    @rule(fulls=st.sampled_from([None, 1, 2]))
    def policy(self, fulls: int | None) -> None:
        if fulls != self.redundancy:
            self._writer().record(
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
        self._writer().record(
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

    def _take(self, full: bool, restart: bool, growth: float) -> int:
        mode = "full" if full else "auto"
        done = self.lab.backup(self.topic, mode=mode, new_generation=restart, growth=growth)
        return int(done["end_ts"])

    def _ends(self) -> set[int]:
        return {row["end_ts"] for row in self.lab.sql("SELECT end_ts FROM backups")}

    def _writer(self) -> CatalogWriter:
        return CatalogWriter(None, str(self.lab.folder))

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
    live(lambda: Compacted(lab, tmp_path), 8, 30)
