"""Which backups of snapshots a rebuilt catalog takes: numbers that two have, and numbers that nobody has."""

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


def put(tmp_path: Path, name: int, number: int, *, mark: Literal["complete", "deleted"] | None) -> str:
    """The manifest of a snapshot's backup, and its marker."""
    storage = open_storage(str(tmp_path))
    found, parts = manifest(name)
    found = replace(found, backup=replace(found.backup, source_kind=SNAPSHOT, number=number))
    put_sidecar(storage, (found, parts))
    if mark:
        sidecar.mark(storage, layout.marker_path("prod", backup_id(name), mark))
    return backup_id(name)


@pytest.mark.parametrize(
    ("marks", "stay"),
    [
        ((None, "complete"), [2, 3]),
        (("complete", None), [1, 3]),
        (("deleted", None), [1, 3]),
        ((None, None), [2, 3]),
        (("complete", "complete"), [1, 2, 3]),
    ],
)
def test_of_two_with_one_number_the_one_that_never_existed_is_left_out(
    run: _Rebuild, tmp_path: Path, marks: tuple[Literal["complete", "deleted"] | None, ...], stay: list[int]
) -> None:
    for name, mark in enumerate(marks, 1):
        put(tmp_path, name, 1, mark=mark)
    put(tmp_path, 3, 2, mark=None)
    assert [found.backup.backup_id for found in run._manifests()] == [backup_id(name) for name in stay]
    left = {1, 2, 3} - set(stay)
    assert len(run.result.problems) == len(left)
    for name, problem in zip(left, run.result.problems, strict=True):
        assert layout.manifest_path("prod", backup_id(name)) in problem
        assert f"{backup_id(3 - name)} has its number, 1" in problem


def row(number: int, source: str = "prod", **changes: str) -> Backup:
    found, _ = manifest(number, source=source)
    return replace(found.backup, **{"source_kind": SNAPSHOT, **changes})  # type: ignore[arg-type]


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
def test_what_is_taken_for_whole(
    run: _Rebuild, backups: list[Backup], states: list[str], problem: str | None
) -> None:
    found = [(backup.number, backup.state) for backup in run._resolved(backups)]
    assert found == [(backup.number, state) for backup, state in zip(backups, states, strict=True)]
    assert [problem in one for one in run.result.problems if problem] == ([True] if problem else [])
    assert len(run.result.problems) == bool(problem)


@pytest.mark.parametrize("field", ["files", "bytes", "entries", "digest"])
def test_a_manifest_whose_parts_hold_something_else_is_left_out(
    run: _Rebuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    put(tmp_path, 1, 1, mark="complete")
    (found,) = run._manifests()
    holds = {name: getattr(found.backup, name) for name in ("files", "bytes", "entries", "digest")}
    monkeypatch.setattr(run, "_torn", lambda _: {})
    monkeypatch.setattr(run, "_added_up", lambda _: {found.backup.backup_id: tuple(holds.values())})
    assert run._agreeing([found]) == [found]
    holds[field] = "0" * 64 if field == "digest" else holds[field] + 1
    assert run._agreeing([found]) == []
    assert f"its parts hold {field} " in run.result.problems[0]
