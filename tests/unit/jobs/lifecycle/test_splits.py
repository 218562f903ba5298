"""The recorded plan of a restore, as a concurrent prune reads it."""

from __future__ import annotations

from pathlib import Path

from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.splits import regions_of, split_path, write_index, write_lines


def test_a_plan_that_is_being_deleted_is_none(tmp_path: Path) -> None:
    """The restore ends after the prune read the index and before it reads the splits."""
    storage, folder = open_storage(str(tmp_path)), "restores/r/"
    for number in range(2):
        write_lines(
            storage, split_path(folder, number), [{"scope": "t", "epoch": "e", "region": str(number)}]
        )
    assert regions_of(storage, folder) is None
    write_index(storage, folder, range(2))
    assert sorted(regions_of(storage, folder) or ()) == [("t", "e", "0"), ("t", "e", "1")]
    storage.delete(split_path(folder, 1))
    assert regions_of(storage, folder) is None
