"""Restores by SELECT and saved plans, as far as planning goes: nothing is restored here."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import EPOCH, backup_id, data_file, manifest, publish
from tests.support.command_line import quiet

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.rows.backups import Floor, Removal
from lakebackup.rows.upkeep import Restore
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.topics.restore import run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def root(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Path:
    """Three backups of a topic with two partitions, ten records a file."""
    root = tmp_path / "backups"
    shutil.copytree(empty_catalog, root / "catalog")
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    for number in (1, 2, 3):
        publish(storage, writer, manifest(number))
    return root


def planned(root: Path, **asked: Any) -> dict[str, Any]:
    request = RestoreRequest(
        **{"destination": str(root), "target": f"dir:{root}/../out", "dry_run": True, **asked}
    )
    return run(request, reporter=quiet())


def test_any_query_that_gives_paths_chooses_files(root: Path) -> None:
    select = """
        WITH newest AS (
          SELECT f.path, f.destination, b.number,
            row_number() OVER (PARTITION BY f.region ORDER BY b.number DESC) AS place
          FROM files f JOIN backups b ON f.backup_id = b.backup_id
          WHERE f.scope = 'orders'
        )
        SELECT * FROM newest WHERE place > 1 OR number < 3
    """
    told = planned(root, select=select)
    assert (told["source"], told["files"], told["entries_in_files"], told["obstacles"]) == ("prod", 4, 40, [])
    rows = [(r["partition"], r["files"], r["to_offset"], r["reaches"]) for r in told["partitions"]]
    assert rows == [(p, 2, 20, "1970-01-01T00:00:02.999Z") for p in ("0", "1")]
    by_path = planned(root, select="SELECT path FROM files UNION ALL SELECT path FROM files")
    assert by_path["files"] == 6, "each once, though it is given twice"
    assert by_path["notes"] == ["6 rows of the SELECT name a file that another row names too"]
    assert {row["reaches"] for row in by_path["partitions"]} == {"1970-01-01T00:00:03.999Z"}


def test_a_select_with_holes_says_what_it_reaches(root: Path) -> None:
    told = planned(root, select="SELECT path FROM files WHERE added_in <> 2 AND region = '0'")
    assert len(told["obstacles"]) == 1
    assert "takes 2 of the 3 files" in told["obstacles"][0]
    assert [row["reaches"] for row in told["partitions"]] == ["1970-01-01T00:00:01.999Z"]
    assert planned(root, select="SELECT path FROM files WHERE added_in <> 2", partial=True)["obstacles"] == []


@pytest.mark.parametrize(
    ("select", "kind", "message"),
    [
        (
            "SELECT scope, bytes FROM files",
            UsageProblem,
            "returns scope, bytes; a restore needs the column path",
        ),
        ("SELECT path FROM files WHERE bytes < 0", NotFound, "chose no file"),
        (
            "SELECT 'orders/nothing' AS path FROM files",
            UsageProblem,
            r"1 files \(unknown\), such as orders/nothing",
        ),
    ],
)
def test_a_select_that_chooses_nothing_to_restore_is_told(
    root: Path, select: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        planned(root, select=select)


def test_an_estimate_is_made_from_finished_restores(spark: SparkSession, root: Path) -> None:
    assert planned(root, topics=("orders",))["estimate"].endswith("(assumed, no restore into dir yet)")
    rows = [
        Restore(restore_id="r", at=1_000_000, source="prod", state="running", target="dir:x", selection=""),
        Restore(restore_id="r", at=2_000_000, source="prod", scope="orders", region="0", state="region_done",
                target="dir:x", selection="", bytes=300),
        Restore(restore_id="r", at=3_000_000, source="prod", state="complete", target="dir:x", selection=""),
    ]  # fmt: skip
    CatalogWriter(spark, str(root)).append(rows)
    told = planned(root, topics=("orders",))
    assert told["estimate"] == "4 s at 0.0 MB/s (the median of 1 restores into dir)"


def prune(spark: SparkSession, root: Path) -> None:
    file = data_file(1)
    home = destination_id(open_storage(str(root)))
    place = {"prune_id": "p7", "at": 5, "source": "prod", "scope": "orders", "epoch": EPOCH, "region": "0"}
    rows = [
        Floor(**place, low_position=10, reason="time"),  # type: ignore[arg-type]
        Removal(**place, destination=home, path=file.path, backup_id=backup_id(1), bytes=100, reason="time"),  # type: ignore[arg-type]
    ]
    CatalogWriter(spark, str(root)).append(rows)


def test_a_plan_holds_as_long_as_the_same_files_come_out(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    newest, fixed = str(tmp_path / "newest.json"), str(tmp_path / "fixed.json")
    secret = {"sasl.password": "hunter2"}
    told = planned(root, topics=("orders",), save_plan=newest, kafka=secret)
    planned(root, topics=("orders",), to_ts=2500, save_plan=fixed)
    text = (tmp_path / "newest.json").read_text()
    assert told["digest"] in text
    assert "hunter2" not in text
    kept = json.loads(text)
    assert kept["versions"] == CatalogReader.require(str(root)).versions()
    assert planned(root, plan=newest, target="dir:nowhere")["files"] == 6
    with pytest.raises(Refused, match="there already"):
        planned(root, topics=("orders",), save_plan=newest)

    publish(open_storage(str(root)), CatalogWriter(spark, str(root)), manifest(4))
    with pytest.raises(Refused, match=rf"2 files that it did not have came in \(backup {backup_id(4)}\)"):
        planned(root, plan=newest)
    assert planned(root, plan=fixed)["files"] == 4
    prune(spark, root)
    with pytest.raises(Refused, match=r"1 files that it had are gone \(prune p7\)"):
        planned(root, plan=fixed)

    gone = f"SELECT '{data_file(1).path}' AS path UNION ALL SELECT path FROM files WHERE region = '1'"
    told = planned(root, select=gone)
    assert "1 files that the SELECT chose were pruned (p7)" in told["obstacles"][0]
    told = planned(root, select=gone, partial=True)
    assert (told["files"], told["obstacles"]) == (4, [])
    assert "were pruned (p7)" in told["notes"][0]


def test_a_plan_that_was_changed_or_is_of_another_catalog_is_not_applied(
    spark: SparkSession, root: Path, empty_catalog: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    planned(root, topics=("orders",), save_plan=str(file))
    text = file.read_text()
    file.write_text(text.replace('"files": 6', '"files": 7'))
    with pytest.raises(Damaged, match="was changed"):
        planned(root, plan=str(file))
    file.write_text(text[:-5])
    with pytest.raises(Damaged, match="no plan"):
        planned(root, plan=str(file))
    with pytest.raises(NotFound, match="no plan"):
        planned(root, plan=str(tmp_path / "other.json"))
    file.write_text(text)
    shutil.rmtree(root / "catalog")
    for marker in root.rglob("complete"):  # else the catalog is behind its destination, which is told first
        marker.unlink()
    CatalogWriter(spark, str(root)).migrate()
    with pytest.raises(Refused, match="another catalog"):
        planned(root, plan=str(file))
