"""Key filters from a backup to a rebuilt catalog: what a file may hold, what their loss does and does not."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from tests.support.compacted import put
from tests.support.disks import flip

from lakebackup.rows.backups import DataFile
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.key_filter import may_hold
from lakebackup_jobs.upkeep import rebuild
from lakebackup_jobs.upkeep.verify import require_whole

if TYPE_CHECKING:
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


def files(lab: Lab) -> list[DataFile]:
    opened = CatalogReader.require(str(lab.folder))
    names = ", ".join(column.name for column in fields(DataFile))
    found = opened.select(f"SELECT {names} FROM files ORDER BY path").read_all().to_pylist()
    return [DataFile(**row) for row in found]


def keys_in(lab: Lab, file: DataFile) -> set[bytes]:
    rows: Any = fastavro.reader(io.BytesIO((lab.folder / file.path).read_bytes()))
    return {row["key"] for row in rows}


def refuse(text: str) -> None:
    pytest.fail(text)


def check(lab: Lab) -> list[DataFile]:
    """Every file has a filter; it lets the file's own keys through, and hardly any other."""
    storage, found = open_storage(str(lab.folder)), files(lab)
    everything = {key for file in found for key in keys_in(lab, file)}
    wrong = asked = 0
    for file in found:
        mine = keys_in(lab, file)
        assert file.keys_path is not None
        assert all(may_hold(storage, file, [key], refuse) for key in mine)
        asked += len(everything - mine)
        wrong += sum(may_hold(storage, file, [key], refuse) for key in everything - mine)
    assert wrong <= 0.03 * asked
    return found


@pytest.mark.long
def test_files_that_are_copied_and_compacted_have_filters(lab: Lab, topic: Make) -> None:
    name = topic("filters", partitions=2, **{"cleanup.policy": "compact"})
    for cycle in range(2):
        put(lab.bootstrap, name, [(i % 2, b"k%d" % (i + cycle * 20), b"%d" % cycle) for i in range(60)])
        lab.backup(name, growth=100)
    assert len(check(lab)) == 4
    lab.compact()
    found = check(lab)
    assert len(found) == 6
    assert sum(len(keys_in(lab, file)) for file in found if file.generation == 1) == 80
    whole = lab.verify()
    assert (whole["filters_lost"], whole["missing"], whole["changed"], whole["orphan"]) == (0, 0, 0, 0)

    # A catalog that was lost has them again.
    shutil.rmtree(lab.folder / "catalog")
    rebuild.run(rebuild.RebuildRequest(destination=str(lab.folder)), spark=lab.spark, reporter=lab.reporter)
    assert check(lab) == found

    # Without a filter, or with a damaged one, a file may hold every key, and nothing else is different.
    one, two = sorted(lab.folder.rglob("*.keys"))[:2]
    one.unlink()
    flip(two, 7)
    told: list[str] = []
    storage = open_storage(str(lab.folder))
    hurt = {str(path.relative_to(lab.folder)) for path in (one, two)}
    for file in found:
        if file.keys_path in hurt:
            assert all(may_hold(storage, file, [key], told.append) for key in keys_in(lab, file))
    assert told
    quick, whole = lab.verify(mode="stat"), lab.verify()
    assert (quick["filters_lost"], whole["filters_lost"]) == (1, 2)
    assert {(f["path"], f["outcome"]) for f in whole["findings"]} == {
        (str(one.relative_to(lab.folder)), "missing"),
        (str(two.relative_to(lab.folder)), "changed"),
    }
    require_whole(whole)
    assert "2 objects with key filters are not whole" in lab.warnings.getvalue()
    assert lab.restore(name, target="dir:" + str(lab.folder.parent / "out"))["entries"] == 80
