"""The backups of snapshots in a rebuilt catalog: numbers that occur twice, and numbers that are missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from tests.support.catalogs import backup_id, manifest, put_sidecar

from lakebackup.recovery.rebuild import _Rebuild
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.writer import CatalogWriter


@pytest.fixture
def run(tmp_path: Path) -> _Rebuild:
    return _Rebuild(None, CatalogWriter(None, str(tmp_path)), None, lambda *_: None, lambda: None)  # type: ignore[arg-type]


def write_manifest(
    tmp_path: Path, name: int, number: int, *, mark: Literal["complete", "deleted"] | None
) -> str:
    """Writes the manifest of a snapshot's backup, and its marker. Returns the id of the backup."""
    storage = open_storage(str(tmp_path))
    backup_manifest, parts = manifest(name)
    backup_manifest = replace(
        backup_manifest, backup=replace(backup_manifest.backup, source_kind=SNAPSHOT, number=number)
    )
    put_sidecar(storage, (backup_manifest, parts))
    if mark:
        sidecar.mark(storage, layout.marker_path("prod", backup_id(name), mark))
    return backup_id(name)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((None, "complete"), [2, 3]),
        (("complete", None), [1, 3]),
        (("deleted", None), [1, 3]),
        ((None, None), [2, 3]),
        (("complete", "complete"), [1, 2, 3]),
    ],
)
def test_of_two_backups_with_one_number_the_uncommitted_one_is_left_out(
    run: _Rebuild,
    tmp_path: Path,
    marks: tuple[Literal["complete", "deleted"] | None, ...],
    expected: list[int],
) -> None:
    for name, mark in enumerate(marks, 1):
        write_manifest(tmp_path, name, 1, mark=mark)
    write_manifest(tmp_path, 3, 2, mark=None)
    assert [backup_manifest.backup.backup_id for backup_manifest in run._manifests()] == [
        backup_id(name) for name in expected
    ]
    removed_names = {1, 2, 3} - set(expected)
    assert len(run.result.problems) == len(removed_names)
    for name, problem in zip(removed_names, run.result.problems, strict=True):
        assert layout.manifest_path("prod", backup_id(name)) in problem
        assert f"{backup_id(3 - name)} has its number, 1" in problem


def row(number: int, source: str = "prod", **changes: str) -> Backup:
    backup_manifest, _ = manifest(number, source=source)
    return replace(backup_manifest.backup, **{"source_kind": SNAPSHOT, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("backups", "states", "problem"),
    [
        pytest.param(
            [row(1), row(2, state="deleted"), row(3), row(7, source="topics", source_kind="kafka")],
            ["complete", "deleted", "complete", "complete"], None, id="no hole",
        ),
        pytest.param(
            [row(1), row(3), row(4, state="deleted"), row(1, source="other")],
            ["complete", "unconfirmed", "deleted", "complete"], "Backup number 2 of prod is missing",
            id="behind a number that is not there",
        ),
        pytest.param(
            [row(1), row(2), row(2, backup_id="again"), row(3)],
            ["complete", *["unconfirmed"] * 3], "Backup number 2 of prod exists twice",
            id="from a number on that two have",
        ),
    ],
)  # fmt: skip
def test_backups_after_a_missing_or_repeated_number_are_unconfirmed(
    run: _Rebuild, backups: list[Backup], states: list[str], problem: str | None
) -> None:
    resolved = [(backup.number, backup.state) for backup in run._resolved(backups)]
    assert resolved == [(backup.number, state) for backup, state in zip(backups, states, strict=True)]
    assert [problem in message for message in run.result.problems if problem] == ([True] if problem else [])
    assert len(run.result.problems) == bool(problem)


@pytest.mark.parametrize("field", ["files", "bytes", "entries", "digest"])
def test_a_manifest_that_disagrees_with_its_parts_is_left_out(
    run: _Rebuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    write_manifest(tmp_path, 1, 1, mark="complete")
    (backup_manifest,) = run._manifests()
    totals = {name: getattr(backup_manifest.backup, name) for name in ("files", "bytes", "entries", "digest")}
    monkeypatch.setattr(run, "_torn", lambda _: {})
    monkeypatch.setattr(
        run, "_added_up", lambda _: {backup_manifest.backup.backup_id: tuple(totals.values())}
    )
    assert run._agreeing([backup_manifest]) == [backup_manifest]
    totals[field] = "0" * 64 if field == "digest" else totals[field] + 1
    assert run._agreeing([backup_manifest]) == []
    assert f"its parts hold {field} " in run.result.problems[0]
