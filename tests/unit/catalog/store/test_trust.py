"""Claims of a catalog count only where settings name them, or a person approved them on this machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.store import trust
from lakebackup.store.trust import Approvals, Claim, LocalNames, Unapproved, destination_claim

CLAIM = Claim("policy", "prod", {"command": ["snapshot", "/data"], "topics": []}, "It would run.")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path
    trust.use(LocalNames())


def test_a_claim_counts_only_once_approved() -> None:
    approvals = Approvals("file:///a/catalog")
    with pytest.raises(
        Unapproved, match="policy prod: command snapshot /data: this was not approved here"
    ) as error:
        approvals.require(CLAIM)
    assert (error.value.exit_code, "lakebackup approve" in error.value.hint) == (5, True)
    approvals.approve([CLAIM])
    Approvals("file:///a/catalog").require(CLAIM)


@pytest.mark.parametrize("uri", ["file:///b/catalog", "file:///a/catalog/", "s3://a/catalog"])
def test_an_approval_is_of_one_catalog(uri: str) -> None:
    Approvals("file:///a/catalog").approve([CLAIM])
    assert not Approvals(uri).allows(CLAIM)


@pytest.mark.parametrize(
    "claim",
    [
        replace(CLAIM, name="prod2"),
        replace(CLAIM, kind="log task"),
        replace(CLAIM, value={"command": ["snapshot", "/etc"], "topics": []}),
        replace(CLAIM, value={"command": ["snapshot", "/data"], "topics": ["a"]}),
        replace(CLAIM, value={"command": ["snapshot", "/data"], "topics": [], "full": "daily"}),
        replace(CLAIM, value={"topics": []}),
    ],
)
def test_a_changed_claim_needs_a_new_approval(claim: Claim) -> None:
    approvals = Approvals("file:///a/catalog")
    approvals.approve([CLAIM])
    assert not approvals.allows(claim)


def test_an_approval_covers_fewer_topics() -> None:
    approvals = Approvals("file:///a/catalog")
    approvals.approve([replace(CLAIM, value={"topics": ["a", "b"]})])
    assert approvals.allows(replace(CLAIM, value={"topics": ["b"]}))
    assert not approvals.allows(replace(CLAIM, value={"topics": ["b", "c"]}))


def test_settings_name_destinations() -> None:
    approvals = Approvals("file:///a/catalog")
    assert not approvals.allows(destination_claim("d", "s3://other/backups"))
    trust.use(LocalNames(destinations=frozenset({"s3://other/backups"})))
    assert approvals.allows(destination_claim("d", "s3://other/backups"))
    assert not approvals.allows(destination_claim("d", "s3://other/backup"))


def test_the_record_is_private_to_the_account(state: Path) -> None:
    Approvals("file:///a/catalog").approve([CLAIM])
    (file,) = (state / "lakebackup/approved").glob("*.json")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.chmod(0o666)
    with pytest.raises(Refused, match="record of approvals"):
        Approvals("file:///a/catalog").allows(CLAIM)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"approved": '])
def test_a_record_that_cannot_be_read_approves_nothing(text: str, state: Path) -> None:
    Approvals("file:///a/catalog").approve([CLAIM])
    (file,) = (state / "lakebackup/approved").glob("*.json")
    file.write_text(text)
    with pytest.raises(EnvironmentProblem, match="cannot be read"):
        Approvals("file:///a/catalog").allows(CLAIM)


def test_an_approval_that_cannot_be_recorded_is_an_error(state: Path) -> None:
    (state / "lakebackup").write_text("a file")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        Approvals("file:///a/catalog").approve([CLAIM])


def test_a_full_disk_keeps_what_was_approved_before(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = Approvals("file:///a/catalog")
    approvals.approve([CLAIM])
    with monkeypatch.context() as full_disk:
        full_disk.setattr(Path, "write_text", _full_disk)
        with pytest.raises(EnvironmentProblem, match="approved cannot be written: No space left"):
            approvals.approve([replace(CLAIM, name="other")])
    approvals.approve([replace(CLAIM, name="third")])
    assert Approvals("file:///a/catalog").allows(CLAIM)
    assert len(list((state / "lakebackup/approved").iterdir())) == 2, "the record and its lock"


def _full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
