"""Backups of compacted topics on a broker that compacts: generations and `lakebackup compact`.

A state machine (Compacted) runs random sequences of writes, broker compactions, backups, compactions, kills,
holds and prunes. After each step the newest backup must restore the latest value of each key, and promised
earlier backups must restore the values of their time.
"""

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
from tests.support.compacted import CLEANED, FILLER, Latest, clean, latest, produce_pairs, restored_records
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


MakeTopic = Callable[..., str]


def restore_latest(lab: Lab, name: str, tmp_path: Path, **changes: Any) -> Latest:
    """Restore a topic into a folder. Returns the latest value of each key, without the test's own filler."""
    target = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
    lab.restore(name, target=f"dir:{target}", **changes)
    return without_filler(latest(restored_records(target / "topics" / name)))


def without_filler(values: Latest) -> Latest:
    return {key: value for key, value in values.items() if key[1] != FILLER}


def latest_in_kafka(lab: Lab, name: str) -> Latest:
    return without_filler(latest(r for _, r in truth.read(lab.bootstrap, name)))


def generations(lab: Lab, name: str) -> list[int]:
    """The generation of a topic in each backup that holds it, in the order of the backups."""
    rows = lab.sql(
        "SELECT s.generation FROM scopes s JOIN backups b ON b.backup_id = s.backup_id "
        f"WHERE s.scope = '{name}' ORDER BY b.number",
    )
    return [row["generation"] for row in rows]


def test_a_key_deleted_between_two_backups_does_not_come_back(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic("deleted", partitions=2, **CLEANED, **{"delete.retention.ms": "300"})
    produce_pairs(
        lab.bootstrap, name, [(partition, b"k%d" % i, b"v") for partition in range(2) for i in range(5)]
    )
    lab.backup(name)
    produce_pairs(lab.bootstrap, name, [(0, b"k1", None), (1, b"k2", b"new")])
    clean(lab.bootstrap, name, 2, is_cleaned=lambda r: (r.partition, r.key) == (0, b"k1"))
    backup = lab.backup(name)
    assert (backup["kind"], backup["generations"]) == (
        "differential",
        [{"topic": name, "generation": 1, "because": "tombstones"}],
    )
    expected = {(partition, b"k%d" % i): b"v" for partition in range(2) for i in range(5)} | {
        (1, b"k2"): b"new"
    }
    del expected[0, b"k1"]
    assert restore_latest(lab, name, tmp_path) == latest_in_kafka(lab, name) == expected
    assert generations(lab, name) == [0, 1]


@pytest.mark.long
def test_compact_keeps_the_latest_record_of_each_key(lab: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic("compact", partitions=2, **{"cleanup.policy": "compact"})
    plain_topic = topic("plain")
    last_backup: dict[str, Any] = {}
    values_by_end: dict[int, Latest] = {}
    for cycle in range(3):
        produce_pairs(
            lab.bootstrap, name, [(i % 2, b"k%d" % (i % 7), b"%d-%d" % (cycle, i)) for i in range(50)]
        )
        produce_pairs(lab.bootstrap, plain_topic, [(0, b"k", b"v")])
        last_backup = lab.backup(name, plain_topic, growth=100)
        values_by_end[last_backup["end_ts"]] = latest_in_kafka(lab, name)
    expected = latest_in_kafka(lab, name)
    plan = lab.compact(dry_run=True)
    assert [t["topic"] for t in plan["topics"]] == [name]
    assert (plan["entries"], len(lab.sql("SELECT * FROM backups"))) == (150, 3)

    compaction = lab.compact()
    assert (compaction["entries"], compaction["kept_entries"], compaction["kept_files"]) == (150, 14, 2)
    assert compaction["left_out"] == [
        {"topic": plain_topic, "because": "its cleanup.policy does not include compact"}
    ]
    assert restore_latest(lab, name, tmp_path) == expected
    assert restore_latest(lab, name, tmp_path, to_ts=last_backup["end_ts"]) == expected
    earlier_end = sorted(values_by_end)[1]  # backups before the compaction can still be restored
    assert restore_latest(lab, name, tmp_path, to_ts=earlier_end) == values_by_end[earlier_end] != expected
    (compaction_row,) = lab.sql("SELECT * FROM backups WHERE number = 4")
    assert (compaction_row["kind"], compaction_row["end_ts"], compaction_row["chain_position"]) == (
        "differential",
        last_backup["end_ts"],
        3,
    )
    assert compaction_row["note"] == f"compaction of {last_backup['backup_id']}"
    assert lab.compact(name)["left_out"] == [
        {"topic": name, "because": "it has no new records since its last compaction"}
    ]

    # The next backup continues where the backup before the compaction ended, in the new generation.
    produce_pairs(lab.bootstrap, name, [(0, b"k0", None), (1, b"new", b"1")])
    next_backup = lab.backup(name, growth=100)
    assert (next_backup["kind"], next_backup["entries"], next_backup["parent"]) == (
        "differential",
        2,
        compaction["backup_ids"][0],
    )
    assert restore_latest(lab, name, tmp_path) == latest_in_kafka(lab, name)
    assert generations(lab, name) == [0, 0, 0, 1, 1]
    verification = lab.verify(mode="decode")
    assert (verification["missing"], verification["damaged"], verification["orphan"]) == (0, 0, 0)
    assert [path.name for path in lab.folder.rglob("plan/*")] == []

    # The kept records have the offsets and the bytes of the topic's records.
    kept_files = lab.sql(
        f"SELECT path FROM files WHERE scope = '{name}' AND generation = 1 AND added_in = 4 ORDER BY path",
    )
    kept_records = [
        (r["partition"], r["offset"], r["key"], r["value"], r["timestamp"])
        for row in kept_files
        for r in fastavro.reader(io.BytesIO((lab.folder / row["path"]).read_bytes()))
    ]
    topic_records = {
        (r.partition, offset): (r.key, r.value, r.timestamp) for offset, r in truth.read(lab.bootstrap, name)
    }
    assert [record[:2] for record in kept_records] == sorted(record[:2] for record in kept_records)
    assert all(
        topic_records[partition, offset] == (key, value, ts)
        for partition, offset, key, value, ts in kept_records
    )

    # A prune deletes the files of the older generation and no others.
    expected = latest_in_kafka(lab, name)
    assert lab.prune()["files"] == 6
    file_counts = lab.sql(
        "SELECT scope, generation, count(*) AS files FROM files GROUP BY ALL ORDER BY scope"
    )
    assert file_counts == [
        {"scope": name, "generation": 1, "files": 4},
        {"scope": plain_topic, "generation": 0, "files": 3},
    ]
    assert restore_latest(lab, name, tmp_path) == expected


@pytest.mark.long
def test_compact_drops_tombstones_only_when_they_are_old(lab: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    hour_ms = 3_600_000
    name = topic("tombstones", **{"cleanup.policy": "compact", "delete.retention.ms": str(hour_ms)})
    long_ago = now_ms() - 2 * hour_ms
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
    target = tmp_path / "kept"
    lab.restore(name, target=f"dir:{target}")
    assert [(r.key, r.value) for r in restored_records(target / "topics" / name)] == [
        (b"young", None),
        (b"back", b"again"),
    ]


@pytest.mark.long
def test_a_gap_before_a_compaction_is_a_gap_in_the_compaction(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic("gap", **{"cleanup.policy": "compact,delete"})
    produce_pairs(lab.bootstrap, name, [(0, b"k", b"%d" % i) for i in range(10)])
    lab.backup(name)
    produce_pairs(lab.bootstrap, name, [(0, b"k", b"%d" % i) for i in range(10)])
    truth.delete_records(lab.bootstrap, name, {0: 15})
    lab.backup(name, on_gap="continue", growth=100)
    lab.compact()
    with pytest.raises(Refused, match="offsets from 10 to 15 were deleted"):
        restore_latest(lab, name, tmp_path)
    assert restore_latest(lab, name, tmp_path, allow_gaps=True) == {(0, b"k"): b"9"}


@pytest.mark.long
def test_a_killed_compaction_loses_nothing_and_the_next_one_completes(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """The killed run leaves rows of files without a backup."""
    name = topic("killed", partitions=2, **{"cleanup.policy": "compact"})
    produce_pairs(lab.bootstrap, name, [(i % 2, b"k%d" % (i % 5), b"%d" % i) for i in range(40)])
    lab.backup(name)
    expected = latest_in_kafka(lab, name)
    killing = watched(tmp_path / "steps", kill_at="commit backups")
    with killing as steps, suppress(Killed, EnvironmentProblem):
        lab.compact()
    assert steps.dead
    expire_leases(lab.folder)
    assert restore_latest(lab, name, tmp_path) == expected
    assert generations(lab, name) == [0]
    assert lab.compact()["topics"]
    assert generations(lab, name) == [0, 1]
    assert restore_latest(lab, name, tmp_path) == expected


@pytest.mark.long
@pytest.mark.parametrize("job", ["new generation", "compaction"])
def test_a_complete_generation_is_restorable_after_a_kill_at_any_step(
    job: str, lab: Lab, topic: MakeTopic, tmp_path: Path, empty_catalog: Path
) -> None:
    name = topic("killed", partitions=2, **CLEANED)
    produce_pairs(lab.bootstrap, name, [(i % 2, b"k%d" % (i % 5), b"%d" % i) for i in range(40)])
    lab.backup(name)
    produce_pairs(lab.bootstrap, name, [(0, b"k0", None), (1, b"more", b"v")])
    clean(lab.bootstrap, name, 2)
    lab.backup(name, growth=100)
    expected = latest_in_kafka(lab, name)

    def run(kill_at: int | str | None) -> tuple[Lab, Steps]:
        # Each run needs its own copy: leftovers of a killed run take sequence numbers, so the next run would
        # take other steps.
        lab_copy = Lab(lab.spark, lab.bootstrap, tmp_path / str(kill_at), empty_catalog)
        shutil.copytree(lab.folder, lab_copy.folder)
        steps_folder = tmp_path / f"steps-{kill_at}"
        with watched(steps_folder, kill_at=kill_at) as steps, suppress(Killed, EnvironmentProblem):
            if job == "compaction":
                lab_copy.compact()
            else:
                lab_copy.backup(name, new_generation=True)
        expire_leases(lab_copy.folder)
        outcome = f"killed before {kill_at}" if steps.dead else "not killed"
        assert restore_latest(lab_copy, name, tmp_path) == expected, outcome
        return lab_copy, steps

    completed_lab, steps = run(None)
    step_names = steps.names()
    assert {"put data", "put part", "put manifest.json", "commit files", "commit backups"} <= set(step_names)
    for step in [*range(1, len(step_names)), "put lease source #3"]:
        assert run(step)[1].dead, step
    completed_lab.backup(name, growth=100)
    assert restore_latest(completed_lab, name, tmp_path) == expected


def test_compact_on_the_command_line(lab: Lab, topic: MakeTopic, cli: Commands) -> None:
    name, plain_topic = topic("cli", **{"cleanup.policy": "compact"}), topic("plain")
    for topic_name in (name, plain_topic):
        produce_pairs(lab.bootstrap, topic_name, [(0, b"k", b"%d" % i) for i in range(5)])
    lab.make_catalog()
    repo = str(lab.folder)
    repo_flags = ("--repo", repo)
    command = ["backup", "topics", name, plain_topic, "--repo", repo, "--bootstrap-server", lab.bootstrap]
    command += ["--groups", "none"]
    cli.result(*command)
    plan = cli.result(*command, "--new-generation", "--dry-run")
    assert plan["generations"] == [{"topic": name, "generation": 1, "because": "asked"}]
    plan = cli.result("compact", *repo_flags, "--dry-run")
    assert (plan["dry_run"], plan["entries"], [t["topic"] for t in plan["topics"]]) == (True, 5, [name])
    assert cli.result("compact", *repo_flags)["kept_entries"] == 1
    assert "it has no new records since" in cli.output("compact", name, *repo_flags)
    assert "--all-keyed" in cli.fails(5, "compact", plain_topic, *repo_flags)
    cli.fails(3, "compact", "other", *repo_flags)
    cli.fails(3, "compact", "--repo", f"{repo}/nowhere")
    with Lease.acquire(
        open_storage(repo), f"source-{lab.sql('SELECT source FROM backups')[0]['source']}", "me"
    ):
        cli.fails(8, "compact", *repo_flags)


PARTITIONS = 2
KEYS = [b"", b"a", b"b", b"c", b"a key of some length"]
# This is long enough for two backups in a row, and short enough to wait for.
TOMBSTONES_STAY_MS = 4_000

# Indexes into lists whose length depends on when a run was killed. An example that draws from the list itself
# could not be replayed. For the same reason no rule has a precondition.
indexes = st.integers(0, 1000)
change_lists = st.lists(
    st.tuples(
        st.integers(0, PARTITIONS - 1),
        st.sampled_from(KEYS),
        st.none() | st.sampled_from([b"", b"v", b"x" * 500]) | st.binary(max_size=6),
    ),
    min_size=1,
    max_size=25,
)


class Compacted(RuleBasedStateMachine):
    """One repository and one topic."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.lab = Lab(lab.spark, lab.bootstrap, self.folder / "backups", lab._empty_catalog)
        self.topic = f"compacted-model-{uuid4().hex[:8]}"
        self.latest: Latest = {}
        self.values_by_end: dict[int, Latest] = {}
        self.promised_ends: set[int] = set()  # ends of backups, in ms, that no prune may touch
        self.held_backups: dict[int, str] = {}
        self.redundancy: int | None = None

    @initialize()
    def begin(self) -> None:
        settings = {**CLEANED, "delete.retention.ms": str(TOMBSTONES_STAY_MS), "retention.ms": "-1"}
        topic_settings = {key.replace(".", "_"): value for key, value in settings.items()}
        truth.create_topic(self.lab.bootstrap, self.topic, PARTITIONS, **topic_settings)
        self.lab.make_catalog()

    @rule(changes=change_lists)
    def write(self, changes: list[tuple[int, bytes, bytes | None]]) -> None:
        produce_pairs(self.lab.bootstrap, self.topic, changes)
        for partition, key, value in changes:
            if value is None:
                self.latest.pop((partition, key), None)
            else:
                self.latest[partition, key] = value

    @rule(tombstones=st.booleans())
    def broker_cleans(self, tombstones: bool) -> None:
        clean(
            self.lab.bootstrap,
            self.topic,
            PARTITIONS,
            is_cleaned=(lambda r: r.value is None) if tombstones else None,
        )

    @rule(full=st.integers(0, 5), restart=st.integers(0, 2), growth=st.sampled_from([1.0, 2.0, 100.0]))
    def backup(self, full: int, restart: int, growth: float) -> None:
        self._record_backup(self._back_up(full == 5, restart == 2, growth))
        self.newest_is_right()

    @rule()
    def compact(self) -> None:
        if self.values_by_end:
            self.lab.compact()
        self.newest_is_right()

    @rule(step=st.integers(1, 22), compaction=st.booleans())
    def killed(self, step: int, compaction: bool) -> None:
        ends_before = self._ends()
        with dying(self.lab.folder, step):
            if compaction and self.values_by_end:
                self.lab.compact()
            else:
                self._back_up(full=False, restart=True, growth=2.0)
        for end_ts in self._ends() - ends_before:  # the run died after its commit, or not at all
            self._record_backup(end_ts)
        self.newest_is_right()

    @rule(fulls=st.sampled_from([None, 1, 2]))
    def policy(self, fulls: int | None) -> None:
        if fulls != self.redundancy:
            self._writer().record(
                Policy(source="lab", at=_now_us(), actor="me", redundancy=fulls, removed=fulls is None)
            )
            self.redundancy = fulls

    @rule(index=indexes)
    def hold(self, index: int) -> None:
        """Hold an existing backup, or release it."""
        if not self.promised_ends:
            return
        end_ts = sorted(self.promised_ends)[index % len(self.promised_ends)]
        point_query = "SELECT backup_id FROM restore_points WHERE covers_from < {0} AND {0} <= covers_to"
        held_id = self.held_backups.pop(end_ts, None)
        backup_id = held_id or self.lab.sql(point_query.format(end_ts))[0]["backup_id"]
        self._writer().record(
            Hold(
                backup_id=backup_id,
                source="lab",
                at=_now_us(),
                actor="me",
                reason="why",
                released=held_id is not None,
            )
        )
        if not held_id:
            self.held_backups[end_ts] = backup_id

    @rule()
    def prune(self) -> None:
        if not self.values_by_end:
            return
        fulls = sorted(
            row["end_ts"] for row in self.lab.sql("SELECT end_ts FROM backups WHERE kind = 'full'")
        )
        oldest_end = fulls[-min(self.redundancy, len(fulls))] if self.redundancy else max(self.values_by_end)
        self.lab.prune()
        self.promised_ends = {
            end_ts for end_ts in self.promised_ends if end_ts >= oldest_end or end_ts in self.held_backups
        }
        self.newest_is_right()

    @rule(index=indexes)
    def earlier_is_right(self, index: int) -> None:
        if not self.values_by_end:
            return
        end_ts = sorted(self.values_by_end)[index % len(self.values_by_end)]
        try:
            restored = self._restore(end_ts)
        except Refused:
            assert end_ts not in self.promised_ends
        else:
            assert restored == self.values_by_end[end_ts]

    def newest_is_right(self) -> None:
        if self.values_by_end:
            assert self._restore(None) == self.values_by_end[max(self.values_by_end)]

    def _record_backup(self, end_ts: int) -> None:
        self.values_by_end[end_ts] = dict(self.latest)
        self.promised_ends.add(end_ts)

    def _back_up(self, full: bool, restart: bool, growth: float) -> int:
        mode = "full" if full else "auto"
        backup = self.lab.backup(self.topic, mode=mode, new_generation=restart, growth=growth)
        return int(backup["end_ts"])

    def _ends(self) -> set[int]:
        return {row["end_ts"] for row in self.lab.sql("SELECT end_ts FROM backups")}

    def _writer(self) -> CatalogWriter:
        return CatalogWriter(None, str(self.lab.folder))

    def _restore(self, to_ts: int | None) -> Latest:
        target = Path(tempfile.mkdtemp(dir=self.folder))
        self.lab.restore(self.topic, to_ts=to_ts, target=f"dir:{target}")
        values = latest(restored_records(target / "topics" / self.topic))
        return {key: value for key, value in values.items() if key[1] != FILLER}

    def teardown(self) -> None:
        truth.delete_topic(self.lab.bootstrap, self.topic)


def _now_us() -> int:
    return time.time_ns() // 1000


@pytest.mark.long
def test_random_lives_of_a_compacted_topic(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Compacted(lab, tmp_path), 8, 30)
