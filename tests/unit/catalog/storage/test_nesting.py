"""Repositories, targets and sources may not contain each other. Their real paths are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.requests import Request
from lakebackup.rules.layout import ROOT_FILE
from lakebackup.storage.nesting import is_within, require_no_repository, require_outside


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    (tmp_path / "repo").mkdir()
    (tmp_path / "catalog").mkdir()
    return Request(str(tmp_path / "repo"), catalog=str(tmp_path / "catalog"))


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("s3://b/repo", "s3://b/repo", True),
        ("s3://b/repo/out/", "s3a://b/repo", True),
        ("s3://b/repo", "s3://b", True),
        ("s3://b/repo2", "s3://b/repo", False),
        ("s3://other/repo/out", "s3://b/repo", False),
        ("/repo/out", "s3://repo", False),
        ("/r/repo/../repo/out", "file:///r/repo/", True),
        ("/r/repo2", "/r/repo", False),
        ("/r", "/r/repo", False),
    ],
)
def test_a_path_is_within_another_by_whole_parts(inner: str, outer: str, expected: bool) -> None:
    assert is_within(inner, outer) is expected


@pytest.mark.parametrize("target", ["repo", "repo/out", "catalog/backups", "."])
def test_a_target_may_not_overlap_the_repository_or_its_catalog(
    request_: Request, tmp_path: Path, target: str
) -> None:
    with pytest.raises(UsageProblem, match=r"lies in|contains"):
        require_outside(request_, str(tmp_path / target))


def test_a_target_is_compared_by_its_real_path(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "up").symlink_to("../link")
    for target in ("link/out", "deep/up/out/more"):
        with pytest.raises(UsageProblem, match="lies in the repository"):
            require_outside(request_, str(tmp_path / target))
    by_link = Request(str(tmp_path / "link"))
    with pytest.raises(UsageProblem, match="lies in the repository"):
        require_outside(by_link, f"file://{tmp_path}/repo/out")


def test_a_target_may_not_be_in_another_repository(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / ROOT_FILE).write_text("{}")
    with pytest.raises(UsageProblem, match=f"the repository {tmp_path}/second"):
        require_outside(request_, str(tmp_path / "second" / "a" / "b"))


def test_targets_beside_the_repository_are_accepted(request_: Request, tmp_path: Path) -> None:
    require_outside(request_, str(tmp_path / "out"))
    require_outside(request_, str(tmp_path / "repo2"))
    require_outside(request_, str(tmp_path), is_file=True)


def test_a_source_may_not_contain_its_repository(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "repo" / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (".", "repo", "catalog", "link", "repo/data"):
        with pytest.raises(UsageProblem, match="each backup would hold those before it"):
            require_no_repository(request_, "data", str(tmp_path / folder))
    require_no_repository(request_, "data", str(tmp_path / "data"))
    require_no_repository(request_, "other", str(tmp_path / "repo" / "data"))
