"""Plan files: their rows are read by ranges, verified, and end with their plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.storage import open_storage
from lakebackup.store import plan_file
from lakebackup.store.plan_file import Groups, PlanFile, write_plan_file

COUNT = 50
ROWS = pa.table({"n": pa.array(range(COUNT), pa.int64()), "path": [f"p{n:03d}" for n in range(COUNT)]})


def plan_file_of(monkeypatch: pytest.MonkeyPatch, group: int, limit: int, *tables: pa.Table) -> PlanFile:
    """A plan file of these rows, with row groups and objects of few rows."""
    monkeypatch.setattr(plan_file, "_GROUP_ROWS", group)
    monkeypatch.setattr(plan_file, "_OBJECT_ROWS", limit)
    return write_plan_file(pa.RecordBatchReader.from_batches(t.schema, t.to_batches(4)) for t in tables)


@pytest.fixture(scope="module")
def file() -> PlanFile:
    with pytest.MonkeyPatch.context() as patch:
        return plan_file_of(patch, 4, 16, ROWS)


def numbers(file: PlanFile, first: int = 0, end: int | None = None) -> list[int]:
    return [n for batch in file.batches(first, end, ["n"]) for n in batch["n"].to_pylist()]


@given(first=st.integers(0, COUNT + 3), length=st.integers(0, COUNT + 3))
def test_a_range_of_several_objects(file: PlanFile, first: int, length: int) -> None:
    assert [plan_object.rows for plan_object in file.objects] == [16, 16, 16, 2]
    assert (file.rows, file.total("n")) == (COUNT, sum(range(COUNT)))
    assert numbers(file, first, first + length) == [*range(COUNT)][first : first + length]


def test_only_row_groups_of_the_range_are_read(file: PlanFile, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = list[int]()
    read = pq.ParquetFile.read_row_group

    def record_group(reader: pq.ParquetFile, number: int, **options: object) -> pa.Table:
        groups.append(number)
        return read(reader, number, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", record_group)
    assert numbers(file, 23, 33) == [*range(23, 33)]
    assert groups == [1, 2, 3, 0]
    # Ranges of one reader have the groups in common that it read last.
    cache: Groups = {}
    for first in range(20, 40):
        (batch,) = file.batches(first, first + 1, ["n"], cache)
        assert batch["n"].to_pylist() == [first]
    assert groups[4:] == [1, 2, 3, 0, 1]
    assert [[*batch.to_pydict()] for batch in file.batches(20, 21, ["path"], cache)] == [["path"]]


def test_the_rows_of_several_statements_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    file = plan_file_of(monkeypatch, 4, 16, ROWS[:10], ROWS[10:30], ROWS[30:])
    assert file.table().equals(ROWS)


def test_a_plan_without_rows_has_columns() -> None:
    file = write_plan_file([ROWS.schema.empty_table().to_reader()])
    assert (file.rows, numbers(file), file.schema()) == (0, [], ROWS.schema)
    assert file.for_statements().schema == ROWS.schema


def test_many_rows_are_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "_FEW_ROWS", COUNT - 1)
    rows = plan_file_of(monkeypatch, 4, 16, ROWS).for_statements()
    assert rows.scanner(columns=["n"]).to_reader().read_all().to_pydict() == {"n": [*range(COUNT)]}


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    copy = write_plan_file([ROWS.to_reader()]).copy_to(open_storage(str(tmp_path)), "plan/")
    path = tmp_path / copy.objects[0].path
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[column.dictionary_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="with rows of a plan"):
        numbers(copy)


def test_a_missing_object_is_damage(tmp_path: Path) -> None:
    copy = write_plan_file([ROWS.to_reader()]).copy_to(open_storage(str(tmp_path)), "plan/")
    copy.delete()
    with pytest.raises(Damaged, match="is missing"):
        numbers(copy)


def test_a_temporary_file_ends_with_its_last_plan(tmp_path: Path) -> None:
    file = write_plan_file([ROWS.to_reader()])
    path = Path(file.uri, file.objects[0].path)
    assert path.parent.stat().st_mode & 0o077 == 0
    copy = file.copy_to(open_storage(str(tmp_path)), "plan/")
    del file
    assert not path.exists()
    assert numbers(copy) == [*range(COUNT)]


def test_a_fork_leaves_the_files_of_its_parent() -> None:
    file = write_plan_file([ROWS.to_reader()])
    if os.fork() == 0:
        del file
        os._exit(0)
    os.wait()
    assert numbers(file) == [*range(COUNT)]


def test_the_end_of_the_process_deletes_temporary_files(tmp_path: Path) -> None:
    program = (
        "import pyarrow as pa; from lakebackup.store.plan_file import write_plan_file; import os;"
        "file = write_plan_file([pa.table({'n': [1]}).to_reader()]); print(os.listdir(os.environ['TMPDIR']))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "lakebackup-plan-" in process.stdout
    assert not list(tmp_path.iterdir())


def test_without_a_folder_no_plan_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not there"))
    plan_file._folder.cache_clear()  # type: ignore[attr-defined]
    try:
        with pytest.raises(EnvironmentProblem, match="TMPDIR"):
            write_plan_file([ROWS.to_reader()])
    finally:
        plan_file._folder.cache_clear()  # type: ignore[attr-defined]
