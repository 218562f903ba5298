"""A prune dies before each of its steps in turn: nothing that counts is ever gone, the next one ends it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.faults import Killed, expire_leases, watched
from tests.support.pruning import data, listed, orders, put, run, seen

from lakebackup import tombstones
from lakebackup.errors import Busy, EnvironmentProblem
from lakebackup.rebuild import rebuild
from lakebackup.storage import open_storage
from lakebackup.store import CatalogWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MOST_STEPS = 80
GOES, STAYS = orders(1, 2, 3, regions=1), orders(4, 5, regions=1)


@pytest.fixture(scope="module")
def made(spark: SparkSession, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed")
    shutil.copytree(empty_catalog, root / "catalog")
    writer = CatalogWriter.open(spark, str(root))
    for number in range(1, 6):
        put(root, writer, number, regions=1)
    return root


def check_ended(root: Path) -> None:
    """As if nothing had ever gone wrong."""
    assert data(root) == listed(root) == STAYS
    assert {row["path"] for row in seen(root, "SELECT path FROM removals")} == GOES
    assert len(seen(root, "SELECT * FROM removals")) == len(GOES)
    assert len(seen(root, "SELECT * FROM audit")) == len(seen(root, "SELECT * FROM floors")) == 1
    storage = open_storage(str(root))
    assert len(list(tombstones.prune_ids(storage))) == len(list(storage.folders("prunes/"))) == 1
    assert tombstones.unfinished(storage) == []


def test_before_each_step(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    died_at: list[str] = []
    for number in range(1, MOST_STEPS):
        root = shutil.copytree(made, tmp_path / str(number))
        with watched(tmp_path / f"steps-{number}", kill_at=number) as steps:
            with suppress(Killed, EnvironmentProblem):
                run(root, spark, delete=True)
            if not steps.dead:
                check_ended(root)
                break
        *taken, last = steps.taken()[:number]
        died_at.append(last)
        where = f"killed before {last!r}, step {number}"
        assert listed(root) == (STAYS if "commit removals" in taken else GOES | STAYS), where
        assert listed(root) <= data(root), where
        if "put lease source" in taken and taken.count("put lease source") < 3:
            with pytest.raises(Busy, match="source-prod is in use"):
                run(root, spark, delete=True)
        expire_leases(root)
        again = run(root, spark, delete=True)
        assert again["resumed"] == ("put prune.json" in taken and "put done" not in taken), where
        assert (again["files"] == len(GOES)) == ("put prune.json" not in taken), where
        check_ended(root)
        shutil.rmtree(root)
    else:
        pytest.fail(f"more than {MOST_STEPS} steps")
    assert {
        "put lease source", "put part", "put prune.json", "commit floors", "commit removals", "commit audit",
        "delete data", "put done",
    } <= set(died_at)  # fmt: skip
    assert died_at.index("commit removals") < died_at.index("delete data")
    assert died_at.count("delete data") == len(GOES)


def test_the_catalog_is_lost_in_the_middle_of_it(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    """The tombstones alone say what was to go; a rebuilt catalog does not count it, and the prune goes on."""
    root = shutil.copytree(made, tmp_path / "lost")
    with watched(tmp_path / "steps") as steps:
        reference = shutil.copytree(made, tmp_path / "reference")
        run(reference, spark, delete=True)
    first = 1 + steps.taken().index("commit floors")
    with watched(tmp_path / "again", kill_at=first), suppress(Killed):
        run(root, spark, delete=True)
    assert data(root) == GOES | STAYS
    expire_leases(root)
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert listed(root) == STAYS
    assert run(root, spark, delete=True)["resumed"] == 1
    check_ended(root)
