# In `make test`: backups of files have a verb, a view and a restore of their own.
"""A database's folder is backed up twice, and the second backup copies only what changed.

Then it turns out that a wrong configuration was saved in between. The administrator finds the versions of
that file with SQL, and restores the first one alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.command_line import Terminal

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_single_file_of_a_databases_folder_comes_back(lakebackup: Terminal) -> None:
    folder = Path("db")
    folder.mkdir()
    files = {
        "000001.sst": b"orders of March",
        "000002.sst": b"orders of April",
        "config.yaml": b"cache: 1GiB",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    lakebackup("backup snapshot db --source store")
    (folder / "000003.sst").write_bytes(b"orders of May")
    (folder / "config.yaml").write_bytes(b"cache: 1 MiB, by mistake")
    second = lakebackup.rows("backup snapshot db --source store")[-1]
    assert (second["copied"], second["unchanged"]) == (2, 2)

    versions = "SELECT * FROM snapshot_files WHERE name = 'config.yaml'"
    rows = lakebackup.rows(f'sql "{versions} ORDER BY added_in"')
    assert [(row["added_in"], row["bytes"]) for row in rows] == [(1, 11), (2, 24)]
    lakebackup(f'restore snapshot --source store --to before --select "{versions} AND added_in = 1"')

    restored = [path for path in Path("before").rglob("*") if path.is_file()]
    assert [(path.name, path.read_bytes()) for path in restored] == [("config.yaml", b"cache: 1GiB")]
