"""A prune dies before each of its steps in turn: nothing that counts is ever gone, the next one ends it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.chosen import chosen
from tests.support.faults import Killed, expire_leases, kinds_of, watched
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
STEPS = (
    "put lease source", "put part", "put prune.json", "put lease catalog", "put checksum of rows",
    "put rows of floors", "commit floors", "put checksum of commit", "commit removals",
    "put checksum of commit #2", "put audit", "put rows of audit", "commit audit",
    "put checksum of commit #3", "delete data", "delete data #2", "delete data #3", "put done",
    "put lease source #4",
)  # fmt: skip
ALWAYS = ("put prune.json", "commit removals", "put audit", "delete data", "put done")
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


def test_every_kind_of_step_is_one_it_dies_at(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    root = shutil.copytree(made, tmp_path / "whole")
    with watched(tmp_path / "steps") as steps:
        run(root, spark, delete=True)
    check_ended(root)
    taken = steps.taken()
    assert set(taken) == kinds_of(STEPS)
    assert taken.index("commit removals") < taken.index("delete data")
    assert taken.count("delete data") == len(GOES)


@pytest.mark.parametrize("at", chosen([*STEPS, *range(1, 40)], ALWAYS))
def test_killed_before(at: int | str, spark: SparkSession, made: Path, tmp_path: Path) -> None:
    """The first step of kinds that leave a state of their own; every one in the soak."""
    root = shutil.copytree(made, tmp_path / "killed")
    with watched(tmp_path / "steps", kill_at=at) as steps:
        with suppress(Killed, EnvironmentProblem):
            run(root, spark, delete=True)
        if not steps.dead:  # it has fewer steps than the soak goes through
            assert isinstance(at, int)
            assert at > len(steps.taken())
            check_ended(root)
            return
    *taken, last = steps.taken()
    assert listed(root) == (STAYS if "commit removals" in taken else GOES | STAYS), last
    assert listed(root) <= data(root), last
    if "put lease source" in taken and taken.count("put lease source") < 3:
        with pytest.raises(Busy, match="source-prod is in use"):
            run(root, spark, delete=True)
    expire_leases(root)
    again = run(root, spark, delete=True)
    assert again["resumed"] == ("put prune.json" in taken and "put done" not in taken), last
    assert (again["files"] == len(GOES)) == ("put prune.json" not in taken), last
    check_ended(root)


def test_the_catalog_is_lost_in_the_middle_of_it(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    """The tombstones alone say what was to go; a rebuilt catalog does not count it, and the prune goes on."""
    root = shutil.copytree(made, tmp_path / "lost")
    with watched(tmp_path / "steps", kill_at="commit floors"), suppress(Killed):
        run(root, spark, delete=True)
    assert data(root) == GOES | STAYS
    expire_leases(root)
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert listed(root) == STAYS
    assert run(root, spark, delete=True)["resumed"] == 1
    check_ended(root)
