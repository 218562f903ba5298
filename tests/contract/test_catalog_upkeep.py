"""Upkeep of the catalog's tables, in a folder and in object storage: no row changes, whatever happens."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from tests.support.rows import filled

from lakebackup.errors import Busy, Damaged, EnvironmentProblem
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.tables import ARROW_SCHEMAS, TABLES, as_row
from lakebackup.sql_engine.delta import table as delta
from lakebackup.sql_engine.delta import upkeep
from lakebackup.sql_engine.delta.as_of import open_then
from lakebackup.sql_engine.delta.change import set_states
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.delta.ddl import make_table
from lakebackup.sql_engine.delta.log import FOLDER
from lakebackup.sql_engine.delta.repeats import remove_repeats, repeats_of
from lakebackup.sql_engine.delta.table import append, live_paths, open_table, write_rows
from lakebackup.sql_engine.delta.tiers import MERGE_AT
from lakebackup.storage import Storage, open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A catalog's folder with the tables `files` and `backups`."""
    if request.param == "folder":
        catalog = open_storage(str(tmp_path / "catalog"))
    else:
        catalog = open_storage(f"s3://{request.getfixturevalue('s3').bucket()}/catalog")
    for table in ("files", "backups"):
        make_table(catalog, table)
    return catalog


def file_row(number: int, **columns: Any) -> DataFile:
    texts = {"path": f"data/{number}", "scope": f"topic-{number % 3}", "sha256": f"{number:064x}"}
    times = {"min_ts": number, "max_ts": number + 1, "start_position": number, "end_position": number + 1}
    row: DataFile = filled(DataFile, **{**texts, **times, "bytes": number, "source": "prod", **columns})
    return row


def add_files(storage: Storage, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        append(storage, "files", [file_row(number)], f"files-{number}")


def add_backups(storage: Storage, count: int) -> None:
    for number in range(1, count + 1):
        row: Backup = filled(Backup, backup_id=f"b{number}", number=number, place=number)
        append(storage, "backups", [row], f"backup-{number}")


def rows(storage: Storage, table: str) -> list[str]:
    return sorted(map(str, rows_of(f"{storage.uri}/{table}").to_pylist()))


def files_of(storage: Storage, table: str) -> list[str]:
    return live_paths(open_table(f"{storage.uri}/{table}"))


def lease_of(storage: Storage, next_step: Callable[[], object] = lambda: None) -> Callable[[], Lease]:
    """Return how a merge acquires the lease. `next_step` runs first: it stands for another writer."""

    def acquire() -> Lease:
        next_step()
        return Lease.acquire(storage, "catalog", "test")

    return acquire


def merge(storage: Storage, table: str = "files", next_step: Callable[[], object] = lambda: None) -> None:
    upkeep.merge_files(storage, table, lease_of(storage, next_step))


def test_merged_files_are_like_all_others(storage: Storage) -> None:
    add_files(storage, 9)
    rows_before, properties = rows(storage, "files"), open_table(f"{storage.uri}/files").metadata()
    merge(storage)
    assert rows(storage, "files") == rows_before
    delta_table = open_table(f"{storage.uri}/files")
    assert delta_table.metadata().configuration == properties.configuration
    (path,) = live_paths(delta_table)
    assert storage.stat(f"files/{path}").bytes < upkeep.SMALL_BYTES
    merged_rows = pq.read_table(pa.BufferReader(storage.get(f"files/{path}")))
    order = list(zip(merged_rows["scope"].to_pylist(), merged_rows["min_ts"].to_pylist(), strict=True))
    assert order == sorted(order)
    (actions,) = pa.table(delta_table.get_add_actions(flatten=True)).to_pylist()
    assert (actions["num_records"], actions["min.min_ts"], actions["max.max_ts"]) == (9, 0, 9)
    assert {name for name in actions if name.startswith("min.")} == {
        f"min.{name}" for name in properties.configuration["delta.dataSkippingStatsColumns"].split(",")
    }
    commits = [entry.path for entry in storage.list(f"files/{FOLDER}/") if entry.path.endswith(".json")]
    lines = map(json.loads, storage.get(max(commits)).splitlines())
    changes = [change for line in lines for name, change in line.items() if name in ("add", "remove")]
    assert [change["dataChange"] for change in changes] == [False] * 10
    assert hashlib.sha256(storage.get(f"files/{path}")).hexdigest() in path, "readers verify it"


def test_a_second_run_does_nothing(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    add_files(storage, 3)
    listing = []
    for _ in range(2):
        merge(storage)
        upkeep.tidy_log(storage, "files")
        listing.append(list(storage.list("files/")))
    assert listing[0] == listing[1]
    assert not caplog.text


def test_a_damaged_file_is_not_merged(storage: Storage) -> None:
    add_files(storage, 3)
    path = f"files/{files_of(storage, 'files')[0]}"
    data = bytearray(storage.get(path))
    data[len(data) // 3] ^= 1
    storage.put(path, bytes(data))
    with pytest.raises(Damaged):
        merge(storage)
    assert len(files_of(storage, "files")) == 3


def test_rows_that_are_appended_during_a_merge_stay(storage: Storage) -> None:
    add_files(storage, 3)
    merge(storage, next_step=lambda: add_files(storage, 2, first=3))
    assert len(rows(storage, "files")) == 5
    assert len(files_of(storage, "files")) == 3


def test_rows_that_are_changed_during_a_merge_stay_changed(storage: Storage) -> None:
    add_backups(storage, 3)
    merge(storage, "backups", lambda: set_states(storage, ["b2"], "deleted"))
    states = rows_of(f"{storage.uri}/backups").select(["number", "state"]).to_pylist()
    assert {row["number"] for row in states if row["state"] == "deleted"} == {2}
    assert len(states) == len(files_of(storage, "backups")) == 3, "the next run merges them"
    merge(storage, "backups")
    assert len(files_of(storage, "backups")) == 1
    assert sorted(row["number"] for row in rows_of(f"{storage.uri}/backups").to_pylist()) == [1, 2, 3]


def test_two_merges_at_the_same_time_keep_each_row_once(storage: Storage) -> None:
    add_files(storage, 4)
    merge(storage, next_step=lambda: merge(storage))
    assert len(rows(storage, "files")) == 4
    assert len(files_of(storage, "files")) == 1


def test_a_writer_that_ignores_the_lease_is_not_overwritten(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_files(storage, 3)
    put_entry, appends = delta.put_entry, [3]

    def put_entry_too_late(*arguments: Any) -> None:
        if appends:
            add_files(storage, 1, first=appends.pop())
        put_entry(*arguments)

    monkeypatch.setattr(delta, "put_entry", put_entry_too_late)
    merge(storage)
    assert len(rows(storage, "files")) == 4
    assert len(files_of(storage, "files")) == 2
    monkeypatch.setattr(delta, "put_entry", put_entry)
    add_files(storage, 2, first=4)
    monkeypatch.setattr(upkeep, "commit_once", lambda *_, **__: False)
    with pytest.raises(Busy, match="Others commit"):
        merge(storage)
    assert len(rows(storage, "files")) == 6


def test_a_commit_whose_answer_is_lost_counts_once(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    add_files(storage, 3)
    put_entry = delta.put_entry

    def put_entry_unanswered(*arguments: Any) -> None:
        put_entry(*arguments)
        raise EnvironmentProblem("no answer")

    monkeypatch.setattr(delta, "put_entry", put_entry_unanswered)
    with pytest.raises(EnvironmentProblem):
        merge(storage)
    monkeypatch.undo()
    assert len(files_of(storage, "files")) == 1
    merge(storage)
    assert len(rows(storage, "files")) == 3


def test_earlier_states_are_read_before_and_after(storage: Storage) -> None:
    instants = []
    for number in range(3):
        add_files(storage, 1, first=number)
        time.sleep(0.002)
        instants.append(time.time_ns() // 1000)
    merge(storage)
    upkeep.tidy_log(storage, "files")
    upkeep.delete_old_files(storage, "files", WEEK_MS)
    add_files(storage, 1, first=3)
    uri = f"{storage.uri}/files"
    assert [len(rows_of(uri, open_then(uri, instant))) for instant in instants] == [1, 2, 3]
    assert len(rows_of(uri)) == 4


def in_days(days: float) -> SimpleNamespace:
    """Return a clock that shows the time in some days."""
    shift_s = days * 86_400
    return SimpleNamespace(
        time=lambda: time.time() + shift_s, time_ns=lambda: time.time_ns() + int(shift_s * 1e9)
    )


def parquet_files(storage: Storage) -> set[str]:
    names = {entry.path.removeprefix("files/") for entry in storage.list("files/")}
    return {name for name in names if name.endswith(".parquet") and "/" not in name}


def test_files_that_nothing_needs_are_deleted(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    add_files(storage, 3)
    old_files = set(files_of(storage, "files"))
    monkeypatch.setattr(delta, "time", in_days(-9))
    merge(storage)  # nine days ago, as far as the log knows
    monkeypatch.undo()
    stray = json.loads(write_rows(storage, "files", pa.Table.from_pylist(
        [as_row(file_row(9))], ARROW_SCHEMAS["files"]
    )))["path"]  # fmt: skip
    upkeep.delete_old_files(storage, "files", WEEK_MS)
    assert old_files | {stray} <= parquet_files(storage), "they are young"
    monkeypatch.setattr(upkeep, "time", in_days(9))
    upkeep.delete_old_files(storage, "files", WEEK_MS)
    assert parquet_files(storage) == set(files_of(storage, "files"))
    remaining = {entry.path.removeprefix("files/.part-")[:32] for entry in storage.list("files/")}
    assert not [path for path in [*old_files, stray] if path.removeprefix("part-")[:32] in remaining]
    assert len(rows(storage, "files")) == 3


def test_files_that_a_reader_may_still_need_stay(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    add_files(storage, 3)
    paths_before = open_table(f"{storage.uri}/files")
    merge(storage)
    monkeypatch.setattr(upkeep, "time", in_days(9))  # the files are old, but were removed only now
    upkeep.delete_old_files(storage, "files", WEEK_MS)
    assert len(rows_of(f"{storage.uri}/files", paths_before)) == 3


def test_a_longer_retention_goes_beyond_what_checkpoints_know(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_files(storage, 3)
    time.sleep(0.002)
    instant = time.time_ns() // 1000
    monkeypatch.setattr(delta, "time", in_days(-9))
    merge(storage)
    monkeypatch.undo()
    upkeep.tidy_log(storage, "files")  # the checkpoint forgets files that were removed more than a week ago
    days = (time.time_ns() // 1000 - instant) / 86_400_000_000
    monkeypatch.setattr(upkeep, "time", in_days(20 - days))
    upkeep.delete_old_files(storage, "files", 20 * DAY_MS)
    assert len(rows_of(f"{storage.uri}/files", open_then(f"{storage.uri}/files", instant))) == 3
    monkeypatch.setattr(upkeep, "time", in_days(21))
    upkeep.delete_old_files(storage, "files", 20 * DAY_MS)
    assert len(parquet_files(storage)) == 1


@pytest.mark.parametrize("commits_since_checkpoint", [1, 0])
def test_old_entries_of_the_log_are_deleted(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, commits_since_checkpoint: int
) -> None:
    add_files(storage, 25)
    entries = [entry.path for entry in storage.list(f"files/{FOLDER}/")]
    upkeep.tidy_log(storage, "files")
    assert set(entries) <= {entry.path for entry in storage.list(f"files/{FOLDER}/")}
    if storage.uri.startswith("file://"):
        for entry in storage.list(f"files/{FOLDER}/"):
            os.utime(f"{storage.uri.removeprefix('file://')}/{entry.path}", (time.time() - 40 * 86_400,) * 2)
    else:
        list_now = type(storage).list

        def list_aged(self: Storage, *arguments: Any, **options: Any) -> Any:
            for entry in list_now(self, *arguments, **options):
                yield replace(entry, modified_ms=entry.modified_ms - 40 * DAY_MS)

        monkeypatch.setattr(type(storage), "list", list_aged)
    for number in range(commits_since_checkpoint):
        append(storage, "files", [file_row(25 + number)], f"files-{25 + number}")
    upkeep.tidy_log(storage, "files")
    monkeypatch.undo()
    commits = [entry.path for entry in storage.list(f"files/{FOLDER}/") if entry.path.endswith(".json")]
    assert int(min(commits).rpartition("/")[2][:20]) >= 20
    assert len(rows(storage, "files")) == 25 + commits_since_checkpoint
    merge(storage)
    assert len(rows(storage, "files")) == 25 + commits_since_checkpoint


def test_large_files_are_divided_and_the_pieces_stay(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_FILE_BYTES", 20_000)
    monkeypatch.setattr(upkeep, "SMALL_BYTES", 10_000)
    monkeypatch.setattr(upkeep, "_LARGE_BYTES", 40_000)
    monkeypatch.setattr(upkeep, "_GROUP_BYTES", 160_000)
    append(storage, "files", [file_row(number, path=os.urandom(40).hex()) for number in range(2000)], "many")
    add_files(storage, 3, first=2000)
    rows_before = rows(storage, "files")
    merge(storage)
    assert rows(storage, "files") == rows_before
    sizes = [storage.stat(f"files/{path}").bytes for path in files_of(storage, "files")]
    assert len(sizes) > 5
    assert max(sizes) < 40_000
    version = open_table(f"{storage.uri}/files").version()
    merge(storage)
    merge(storage)
    assert open_table(f"{storage.uri}/files").version() <= version + 1
    assert rows(storage, "files") == rows_before


# A program that is killed when it has changed the storage of its first argument as often as the second says.
DYING = """
import os, signal, sys
from lakebackup.storage import open_storage
storage, steps = open_storage(sys.argv[1]), int(sys.argv[2])
def dying(method):
    def step(*arguments, **options):
        global steps
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*arguments, **options)
    return step
for name in ("put", "put_together", "delete"):
    if hasattr(type(storage), name):
        setattr(type(storage), name, dying(getattr(type(storage), name)))
"""
KILLED = f"""{DYING}
from lakebackup.sql_engine.delta import upkeep
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter
upkeep.merge_files(storage, "files", lambda: Lease.acquire(storage, "catalog", "killed", ttl_s=1))
upkeep.tidy_log(storage, "files")
upkeep.delete_old_files(storage, "files", -1000)
print("done")
"""


@pytest.mark.parametrize(
    "steps", [pytest.param(step, marks=[] if step % 3 == 1 else pytest.mark.long) for step in range(9)]
)
def test_a_merge_that_is_killed_loses_no_row(storage: Storage, steps: int) -> None:
    add_files(storage, 3)
    rows_before = rows(storage, "files")
    process = subprocess.run(
        [sys.executable, "-c", KILLED, storage.uri, str(steps)], capture_output=True, text=True, check=False
    )
    assert process.returncode in (0, -9), process.stderr
    assert rows(storage, "files") == rows_before
    upkeep.merge_files(storage, "files", lambda: Lease.acquire(storage, "catalog", "next", wait_s=60))
    add_files(storage, 1, first=3)
    assert len(rows(storage, "files")) == 4
    assert len(files_of(storage, "files")) == 2


def test_every_table_can_be_merged(storage: Storage) -> None:
    for table in TABLES:
        make_table(storage, table)
        merge(storage, table)
        upkeep.tidy_log(storage, table)
        upkeep.delete_old_files(storage, table, WEEK_MS)


def add_by_runs(storage: Storage, count: int, first: int = 0) -> None:
    """Commit rows as runs do, each with a writer of its own."""
    for number in range(first, first + count):
        destination = storage.uri.rpartition("/")[0]
        CatalogWriter(None, destination, storage.uri).append([file_row(number)], f"files-{number}")


def merge_due(storage: Storage, lease: Callable[[], Any]) -> None:
    upkeep.merge_due_files(storage, ["files"], lease)


def test_runs_keep_files_few_and_logs_short(storage: Storage) -> None:
    add_by_runs(storage, 2 * MERGE_AT + 3)
    assert len(rows(storage, "files")) == 2 * MERGE_AT + 3
    assert len(files_of(storage, "files")) < MERGE_AT
    state = upkeep.upkeep_of(storage.uri)
    assert state.small_files == state.most_small_files < MERGE_AT
    assert 0 < state.log_entries <= 20
    assert state.merged_ms is not None
    assert 0 <= time.time() * 1000 - state.merged_ms < 600_000


def test_an_earlier_state_is_read_after_runs_have_merged(storage: Storage) -> None:
    add_by_runs(storage, MERGE_AT - 1)
    opened_before = open_table(f"{storage.uri}/files")
    time.sleep(0.002)
    instant = time.time_ns() // 1000
    time.sleep(0.002)
    add_by_runs(storage, 2, first=MERGE_AT - 1)
    assert len(files_of(storage, "files")) == 2
    uri = f"{storage.uri}/files"
    assert len(rows_of(uri, open_then(uri, instant))) == MERGE_AT - 1
    assert len(rows_of(uri, opened_before)) == MERGE_AT - 1, "a reader at work still has its files"


def test_a_run_does_not_wait_for_the_lease_to_merge(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    add_files(storage, MERGE_AT)
    with Lease.acquire(storage, "catalog", "another run", ttl_s=600):
        started = time.monotonic()
        merge_due(storage, lambda: Lease.acquire(storage, "catalog", "this run", wait_s=0))
        assert time.monotonic() - started < 30
    assert len(files_of(storage, "files")) == MERGE_AT
    assert not caplog.text
    add_by_runs(storage, 1, first=MERGE_AT)
    assert len(files_of(storage, "files")) == 1
    assert len(rows(storage, "files")) == MERGE_AT + 1


def test_an_error_of_a_merge_does_not_fail_the_run(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    add_by_runs(storage, MERGE_AT - 1)
    path = f"files/{files_of(storage, 'files')[0]}"
    data = bytearray(storage.get(path))
    data[len(data) // 3] ^= 1
    storage.put(path, bytes(data))
    add_by_runs(storage, 2, first=MERGE_AT - 1)
    assert len(files_of(storage, "files")) == MERGE_AT + 1
    assert caplog.text.count("are not merged") == 2


def test_what_others_commit_during_a_merge_of_a_run_stays(storage: Storage) -> None:
    add_files(storage, MERGE_AT)
    merge_due(storage, lease_of(storage, lambda: add_files(storage, 2, first=MERGE_AT)))
    assert len(files_of(storage, "files")) == 3
    add_backups(storage, MERGE_AT)
    change = lease_of(storage, lambda: set_states(storage, ["b2"], "deleted"))
    upkeep.merge_due_files(storage, ["files", "backups"], change)
    states = rows_of(f"{storage.uri}/backups").select(["number", "state"]).to_pylist()
    assert sorted(row["number"] for row in states) == list(range(1, MERGE_AT + 1))
    assert {row["number"] for row in states if row["state"] == "deleted"} == {2}
    assert len(rows(storage, "files")) == MERGE_AT + 2


DELTA_RS_FAULT = (
    "delta-rs 1.6.6 commits a merge although another commit has removed the files (docs/adr/0017)"
)


@pytest.mark.parametrize(
    "first",
    [
        "another program",
        pytest.param("lakebackup", marks=pytest.mark.xfail(strict=True, reason=DELTA_RS_FAULT)),
    ],
)
def test_another_program_may_compact_the_same_files(tmp_path: Path, first: str) -> None:
    storage = open_storage(str(tmp_path / "catalog"))
    make_table(storage, "files")
    add_files(storage, MERGE_AT)
    rows_before = rows(storage, "files")
    stranger = DeltaTable(str(tmp_path / "catalog" / "files"))
    if first == "another program":
        merge_due(storage, lease_of(storage, lambda: stranger.optimize.compact()))
    else:
        merge_due(storage, lease_of(storage))
        with suppress(DeltaError):
            stranger.optimize.compact()
    assert rows(storage, "files") == rows_before
    assert len(files_of(storage, "files")) == 1
    add_by_runs(storage, 2, first=MERGE_AT)
    assert len(rows(storage, "files")) == MERGE_AT + 2


def compacted_too_late(storage: Storage) -> DeltaTable:
    """Let another program compact the files of the table `files` that a run has merged meanwhile."""
    stranger = DeltaTable(f"{storage.uri.removeprefix('file://')}/files")
    merge_due(storage, lease_of(storage))
    stranger.optimize.compact()
    return stranger


def test_rows_that_another_program_repeated_are_found_and_removed(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "catalog"))
    make_table(storage, "files")
    add_files(storage, MERGE_AT)
    uri, rows_before = f"{storage.uri}/files", rows(storage, "files")
    assert not repeats_of(uri).commits
    version = compacted_too_late(storage).version()
    assert len(rows(storage, "files")) == 2 * MERGE_AT
    add_by_runs(storage, MERGE_AT, first=MERGE_AT)  # runs merge the repeated rows with those of new files
    (commit,) = repeats_of(uri).commits
    assert (commit.table, commit.version) == ("files", version)
    assert "delta-rs" in commit.program
    commits, removed = remove_repeats(storage, "files", lease_of(storage))
    assert (commits, removed) == ([commit], MERGE_AT)
    assert rows(storage, "files")[:1] == rows_before[:1]
    assert len(rows(storage, "files")) == len(set(rows(storage, "files"))) == 2 * MERGE_AT
    assert not repeats_of(uri).commits
    assert remove_repeats(storage, "files", lease_of(storage)) == ([], 0)


def test_repeated_rows_stay_when_another_run_replaces_them_meanwhile(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "catalog"))
    make_table(storage, "files")
    add_files(storage, MERGE_AT)
    compacted_too_late(storage)
    assert remove_repeats(storage, "files", lease_of(storage, lambda: merge(storage))) == ([], 0)
    assert len(rows(storage, "files")) == 2 * MERGE_AT
    assert remove_repeats(storage, "files", lease_of(storage))[1] == MERGE_AT


KILLED_RUN = f"""{DYING}
from tests.contract.test_catalog_upkeep import add_by_runs
from lakebackup.sql_engine.delta.tiers import MERGE_AT
add_by_runs(storage, 1, first=MERGE_AT - 1)
"""


@pytest.mark.parametrize(
    "steps", [pytest.param(step, marks=[] if step in (3, 6, 8) else pytest.mark.long) for step in range(14)]
)
def test_a_run_that_is_killed_while_it_merges_loses_no_row(storage: Storage, steps: int) -> None:
    add_files(storage, MERGE_AT - 1)
    process = subprocess.run(
        [sys.executable, "-c", KILLED_RUN, storage.uri, str(steps)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode in (0, -9), process.stderr
    count = len(rows(storage, "files"))
    assert count in (MERGE_AT - 1, MERGE_AT)
    add_by_runs(storage, 2, first=MERGE_AT - 1)
    assert len(rows(storage, "files")) == MERGE_AT + 1, "the killed run's row is there once"
    assert len(files_of(storage, "files")) <= 3
