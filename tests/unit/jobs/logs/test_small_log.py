"""A small log is restored by this process: what was committed at any instant, as a table that others read."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.support.command_line import quiet
from tests.support.made_changes import MadeChanges, commit, load, put

from lakebackup.errors import Damaged
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.restore import job
from lakebackup_jobs.runtime import session

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def made(empty_catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeChanges:
    """A log without flushes; Spark cannot be started."""
    monkeypatch.setattr(session, "spark_session", None)
    root = tmp_path / "backups"
    shutil.copytree(empty_catalog, root / "catalog")
    return MadeChanges(root, CatalogWriter(None, str(root)))


def restore(made: MadeChanges, to: str, **asked: Any) -> dict[str, Any]:
    request = LogRestoreRequest(str(made.root), name="shop", target=f"delta:{made.root.parent / to}", **asked)
    return job.run(request, reporter=quiet())


def rows(made: MadeChanges, to: str) -> list[dict[str, Any]]:
    found = DeltaTable(made.root.parent / to).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["table_id"], row["key"]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_committed_at_any_instant(made: MadeChanges, seed: int) -> None:
    load(made, seed, 3)
    for cut in [*random.Random(seed).sample(range(12, made.end_ts), 3), made.end_ts]:
        done = restore(made, f"{cut}", end_ts=cut)
        named = [{**row, "db": "shop", "name": f"t{row['table_id']}"} for row in made.latest(cut)]
        assert rows(made, f"{cut}") == [
            {name: row[name] for name in rows(made, f"{cut}")[0]} for row in named
        ]
        assert done["entries"] == len(named)
    assert restore(made, f"{made.end_ts}", end_ts=made.end_ts)["done_before"]


def test_a_value_that_is_not_in_the_log_leaves_no_table(made: MadeChanges) -> None:
    made.flush([commit(1, b"lost", 5, 10), put(1, b"a", 11, b"1")], 20)
    with pytest.raises(
        Damaged, match=r"value of key 6c6f7374 of table 1, .* start ts 5 .* is not in the log"
    ):
        restore(made, "out", end_ts=20)
    assert not (made.root.parent / "out").exists()
