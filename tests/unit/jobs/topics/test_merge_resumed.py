"""An interrupted merge is resumed with its recorded plan, and starts over without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.topics import merge
from lakebackup_jobs.topics.merge import MergeRequest, TopicsMerge


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a full, a differential, and a merge of both that was interrupted before its tasks."""
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 0)]], full=True)
    backups.backup([[Record(0, 1)]])
    backups.flush()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TopicsMerge, "copy", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    return tmp_path


def run(root: Path, *, dry_run: bool = False) -> dict[str, Any]:
    request = MergeRequest(destination=str(root), level=1, runner="local", dry_run=dry_run)
    return merge.run(request, reporter=quiet())


def planned_objects(root: Path) -> list[str]:
    return [entry.path for entry in open_storage(str(root)).list("prod/backups/") if "/plan/" in entry.path]


def test_an_interrupted_merge_is_resumed_with_its_plan(interrupted: Path) -> None:
    assert {Path(path).name for path in planned_objects(interrupted)} == {"plan.json", "rows-000000.parquet"}
    result = run(interrupted)
    assert (result["resumed"], result["made_files"], len(result["merged"])) == (True, 1, 2)
    assert planned_objects(interrupted) == []


def test_a_dry_run_has_the_totals_of_the_run_and_writes_nothing(interrupted: Path) -> None:
    objects = planned_objects(interrupted)
    dry_run = run(interrupted, dry_run=True)
    assert planned_objects(interrupted) == objects
    assert (dry_run.pop("dry_run"), dry_run["files"], dry_run["entries"]) == (True, 2, 2)
    assert dry_run.items() <= run(interrupted).items()


def test_a_merge_that_an_older_version_began_starts_over(interrupted: Path) -> None:
    storage = open_storage(str(interrupted))
    folder = planned_objects(interrupted)[0].partition("plan/")[0]
    for path in planned_objects(interrupted):
        storage.delete(path)
    storage.put(f"{folder}plan/000000.jsonl", b"[0, []]\n")
    result = run(interrupted)
    assert (result["resumed"], result["made_files"]) == (False, 1)
    assert planned_objects(interrupted) == []
    newest = CatalogReader.require(str(interrupted)).first_row("newest_id", source="prod")
    assert newest == {"backup_id": result["backup_id"]}
