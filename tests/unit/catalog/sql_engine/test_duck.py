from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.rows import backup_id, backup_row, file_row

from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, NotFound, TooLarge, UsageProblem
from lakebackup.sql_engine import relations_in, steps, to_duckdb
from lakebackup.sql_engine.delta import dataset, verified
from lakebackup.sql_engine.delta.table import _check, append
from lakebackup.sql_engine.duck import DuckEngine, view_columns
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.storage import open_storage
from lakebackup.store.writer import CatalogWriter
from lakebackup_sql import area, load, names

if TYPE_CHECKING:
    from lakebackup.sql_engine import Bindings

SECRET = pa.table({"a": [1]})


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM SECRET",
        "COPY (SELECT 1) TO '{file}.out'",
        "ATTACH '{file}.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "RESET lock_configuration",
        "EXPORT DATABASE '{file}.d'",
    ],
)
def test_nothing_but_the_catalog_can_be_reached(statement: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    with pytest.raises(LakebackupError):
        DuckEngine(str(tmp_path)).run(statement.format(file=file), (), {}).read_all()
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_catalog_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no table at"):
        DuckEngine(str(tmp_path)).query("list_backups", source=None)


def test_an_unreadable_log_is_damage(tmp_path: Path) -> None:
    log = tmp_path / "audit" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"metaData": {"id"')
    with pytest.raises(Damaged, match="log of the table"):
        DuckEngine(str(tmp_path)).select(check_select("SELECT * FROM audit", view_columns()))


def test_a_query_that_needs_too_much_memory_is_stopped(tmp_path: Path) -> None:
    statement = "SELECT list(range) AS l FROM range(200000000)"
    with pytest.raises(EnvironmentProblem, match="memory"):
        DuckEngine(str(tmp_path)).run(statement, (), {}).read_all()


def test_a_wrong_statement_is_a_usage_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="colour"):
        DuckEngine(str(tmp_path)).run("SELECT colour FROM (SELECT 1 AS a)", (), {}).read_all()


def test_a_plan_has_a_row_for_each_line(tmp_path: Path) -> None:
    CatalogWriter(None, str(tmp_path)).migrate()
    checked = check_select("EXPLAIN SELECT kind FROM backups", view_columns())
    lines = DuckEngine(f"{tmp_path}/catalog").select(checked).read_all().column("plan").to_pylist()
    assert "│ Table: backups " in lines[1]
    assert {len(line) for line in lines} == {len(lines[0])}


def test_values_are_parameters_and_never_text(tmp_path: Path) -> None:
    engine = DuckEngine(str(tmp_path))
    text = to_duckdb("SELECT :word AS word")
    assert text == "SELECT\n  $word AS word"
    assert engine.run(text, (), {"word": "x' OR '1"}).read_all().to_pylist() == [{"word": "x' OR '1"}]


def test_a_name_stands_for_the_rows_that_a_statement_binds_to_it(tmp_path: Path) -> None:
    engine = DuckEngine(str(tmp_path))
    text = "SELECT :path AS path, 'd' AS destination"
    first, second = (engine.keep_query("selected", text, path=path) for path in ("a", "b"))
    for relation, path in ((first, "a"), (second, "b"), (first, "a")):
        assert paths_in(engine, {"selected": relation}) == [path]
    with pytest.raises(NotFound, match="no relation"):
        paths_in(engine, {'x" AS SELECT 1; --': first}, 'x" AS SELECT 1; --')
    with pytest.raises(UsageProblem, match="does not exist"):
        paths_in(engine, {})


def test_rows_end_with_their_last_reader(tmp_path: Path) -> None:
    engine = DuckEngine(str(tmp_path))
    reference, registered = engine.keep_query("a", "SELECT 'a' AS path"), engine.keep_rows(SECRET)
    names = {reference.rows, registered.rows}
    assert paths_in(engine, {"selected": reference}) == ["a"]
    assert names <= relations_of(engine)
    del reference, registered
    with pytest.raises(UsageProblem, match="does not exist"):
        paths_in(engine, {})
    assert not names & relations_of(engine)


def paths_in(engine: DuckEngine, bindings: Bindings, name: str = "selected") -> list[str]:
    rows = engine.run("SELECT path FROM selected", [name], {}, bindings=bindings)
    return [str(path) for path in rows.read_all()["path"].to_pylist()]


def relations_of(engine: DuckEngine) -> set[str]:
    connection = engine._connection
    rows = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
    return {name for (name,) in rows}


def test_an_engine_does_not_see_relations_of_another(tmp_path: Path) -> None:
    first, second = DuckEngine(str(tmp_path)), DuckEngine(str(tmp_path))
    bindings = {"selected": first.keep_query("a", "SELECT 1 AS a"), "chosen": first.keep_rows(SECRET)}
    for name, relation in bindings.items():
        assert first.columns(relation) == ["a"]
        with pytest.raises(UsageProblem, match="does not exist"):
            second.run(f"SELECT * FROM {name}", [name], {}).read_all()


def test_a_fork_does_not_close_the_databases_of_its_parent(tmp_path: Path) -> None:
    """A fork has none of their threads. Spark's JVM is started by a fork that first runs a function."""
    DuckEngine(str(tmp_path))
    _check("backups", SECRET, {"delta.constraints.positive": "a > 0"})
    subprocess.run(["true"], preexec_fn=os.getpid, check=True)
    with pytest.raises(UsageProblem, match="positive"):
        _check("backups", SECRET, {"delta.constraints.positive": "a > 1"})


def test_only_relations_that_a_statement_reads_are_opened() -> None:
    assert relations_in("WITH a AS (SELECT * FROM files) SELECT * FROM a JOIN backups") == {
        "files",
        "backups",
    }
    assert steps(load("queries", "rebuild_left_out")) == ("raw_audit", "audit")
    assert set(steps(load("queries", "list_files"))) == {
        "raw_backups", "raw_files", "raw_removals", "emptied_backups", "files",
    }  # fmt: skip
    internal = {view for view in names("views") if area("views", view).startswith("internal")}
    assert set(view_columns()) == set(names("views")) - internal


def test_of_many_files_only_the_needed_columns_and_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without removals no path is read. DuckDB passes conditions on columns with statistics to the scan."""
    writer = CatalogWriter(None, str(tmp_path))
    writer.migrate()
    storage = open_storage(writer.catalog_uri)
    for number in (1, 2):
        append(storage, "files", [file_row(number, path=f"f{number}", end_position=1)], f"files of {number}")
    append(storage, "backups", [backup_row(1), backup_row(2)], "both")
    monkeypatch.setattr(dataset, "_SMALL_BYTES", 0)  # every table with a row is a dataset
    scans: list[tuple[str, list[str]]] = []
    original_unlocked = dataset._with_read_ahead

    def watched(kind: type) -> type:
        class Watched(original_unlocked(kind)):  # type: ignore[misc]
            def scanner(self, **options: Any) -> Any:
                scans.extend(
                    (part.path, options["columns"]) for part in self.get_fragments(options.get("filter"))
                )
                return super().scanner(**options)

        return Watched

    monkeypatch.setattr(dataset, "_with_read_ahead", watched)

    def select_rows(select: str) -> list[dict[str, Any]]:
        scans.clear()
        engine = DuckEngine(writer.catalog_uri)
        return engine.run(select, steps("SELECT * FROM files"), {}).read_all().to_pylist()

    assert select_rows("SELECT COUNT(*) AS files FROM files WHERE role = 'data'") == [{"files": 2}]
    assert scans
    assert "path" not in {column for _, columns in scans for column in columns}
    (row,) = select_rows(f"SELECT path, role FROM files WHERE backup_id = '{backup_id(2)}'")
    assert row == {"path": "f2", "role": "data"}
    assert len([path for path, columns in scans if "path" in columns]) == 1


def test_a_limit_counts_the_rows_of_the_files_that_are_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = CatalogWriter(None, str(tmp_path))
    writer.migrate()
    storage = open_storage(writer.catalog_uri)
    for number in (1, 2):
        rows = [file_row(number, path=f"f{number}-{n}", end_position=1) for n in range(3)]
        append(storage, "files", rows, f"files of {number}")
    append(storage, "backups", [backup_row(1), backup_row(2)], "both")
    monkeypatch.setattr(dataset, "_SMALL_BYTES", 0)  # every table with a row is a dataset
    engine = DuckEngine(writer.catalog_uri)
    both = "SELECT path FROM raw_files"
    second = f"{both} WHERE backup_id = '{backup_id(2)}'"

    def count(select: str) -> int:
        return engine.run(select, ["raw_files"], {}).read_all().num_rows

    with engine.reading_at_most(3):
        assert count(second) == 3
    with engine.reading_at_most(5), pytest.raises(TooLarge):
        count(both)
    with engine.reading_at_most(5):  # the limit is that of all queries of the block
        assert count(second) == 3
        with pytest.raises(TooLarge):
            count(second)
    assert count(both) == 6


def test_a_view_has_at_most_so_many_rows(tmp_path: Path) -> None:
    writer = CatalogWriter(None, str(tmp_path))
    writer.migrate()
    append(open_storage(writer.catalog_uri), "backups", [backup_row(1), backup_row(2)], "both")
    engine = DuckEngine(writer.catalog_uri)
    assert len(engine.relation("backups", most_rows=2)) == 2
    with pytest.raises(TooLarge, match="more than 1 rows"):
        engine.relation("backups", most_rows=1)


def test_no_column_with_statistics_is_read_as_a_dictionary() -> None:
    stated = re.compile(r"'delta.dataSkippingStatsColumns' = '([^']*)'")
    for migration in names("migrations"):
        for table in names(f"migrations/{migration}"):
            for columns in stated.findall(load(f"migrations/{migration}", table)):
                assert table == "destinations" or not dataset._REPEATED & set(columns.split(","))


def test_only_a_few_files_are_read_ahead() -> None:
    opened: list[int] = []
    rows = pa.table({"number": [1, 2]})

    def read(part: int) -> pa.Table:
        opened.append(part)
        return rows

    answer = dataset._ahead(read, range(100))
    assert not opened
    assert next(answer).num_rows == 2
    answer.close()
    assert len(opened) <= dataset._AHEAD
    assert sum(batch.num_rows for batch in dataset._ahead(read, range(100))) == 200


def test_no_file_is_opened_once_the_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that leaves rows unread ends too: this was tried with a catalog of 10 million rows."""
    (tmp_path / "a.parquet").write_bytes(b"whole")
    monkeypatch.setattr(verified, "_ending", threading.Event())
    opening, proceed = threading.Event(), threading.Event()
    files = verified.VerifiedFiles(str(tmp_path))

    def open_slowly(_: str) -> None:
        opening.set()
        proceed.wait()

    monkeypatch.setattr(files, "_open", open_slowly)
    reader = threading.Thread(target=files.open_input_file, args=("a.parquet",))
    reader.start()
    opening.wait()
    end = threading.Thread(target=verified.open_no_more, kwargs={"reading": False})
    end.start()
    assert end.is_alive()  # it waits for the file that is being opened
    proceed.set()
    end.join()
    reader.join()
    with pytest.raises(OSError, match="ends"):
        files.open_input_file("a.parquet")
