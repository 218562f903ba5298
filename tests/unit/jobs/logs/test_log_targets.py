"""What the target of a restored log says that it holds, and which restores may continue there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakebackup.errors import Refused, UsageProblem
from lakebackup_jobs.cli import main
from lakebackup_jobs.targets import RestoredSpan, is_done
from lakebackup_jobs.targets.delta import DeltaTarget

RESTORED = RestoredSpan(source="shop", from_ts=0, to_ts=100, start_ts=0, filters=[])


def commits(folder: Path, *infos: dict[str, Any]) -> DeltaTarget:
    (folder / "_delta_log").mkdir()
    for version, info in enumerate(infos):
        (folder / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}))
    return DeltaTarget(str(folder))


WRITE = {"operation": "WRITE", "userMetadata": RESTORED.text()}


def test_a_table_of_a_restore_says_what_it_holds(tmp_path: Path) -> None:
    assert (
        commits(tmp_path, WRITE, {"operation": "OPTIMIZE"}, {"operation": "VACUUM END"}).restored_span()
        == RESTORED
    )


def test_a_table_that_was_changed_since_cannot_be_continued(tmp_path: Path) -> None:
    target = commits(tmp_path, WRITE, {"operation": "DELETE"}, {"operation": "OPTIMIZE"})
    for as_of in (None, 100):
        with pytest.raises(Refused, match=r"was changed \(DELETE\)"):
            target.restored_span(others_as_of=("shop", as_of))


def test_a_table_of_someone_else(tmp_path: Path) -> None:
    target = commits(tmp_path, {"operation": "WRITE"})
    with pytest.raises(Refused, match="no restore of a log made it"):
        target.restored_span()
    with pytest.raises(Refused, match="no restore"):
        target.restored_span(others_as_of=("shop", None))
    assert target.restored_span(others_as_of=("shop", 70)) == RestoredSpan("shop", 70, 70, 70)


def test_a_folder_of_someone_else(tmp_path: Path) -> None:
    (tmp_path / "part-00000-1.c000.snappy.parquet").touch()
    assert DeltaTarget(str(tmp_path)).restored_span() is None
    (tmp_path / "mine.txt").touch()
    with pytest.raises(Refused, match=r"mine\.txt"):
        DeltaTarget(str(tmp_path)).restored_span()


def test_a_restore_that_depends_on_another_table_continues_none() -> None:
    requested = RestoredSpan(source="shop", from_ts=0, to_ts=200, start_ts=100, filters=[])
    earlier = RestoredSpan(source="shop", from_ts=50, to_ts=100, start_ts=50, filters=[])
    assert not is_done(earlier, requested)
    assert not is_done(None, requested, from_full=True)
    assert is_done(requested, requested, from_full=True)
    for existing in (earlier, RESTORED, replace(requested, from_ts=50)):
        with pytest.raises(Refused, match="is new"):
            is_done(existing, requested, from_full=True)


def test_a_restore_of_a_point_into_topics_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["restore", "point", "shop", "--repo", str(tmp_path), "--to", "kafka://localhost:1"]
    assert main(command) == UsageProblem.exit_code
    assert "into topics" in capsys.readouterr().err
