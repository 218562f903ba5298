"""Limits what rows of a catalog can make this machine do. docs/security.md has the rules.

Whoever can write the storage can write any row. So a row that names a server, another destination or a
command is only a claim. It counts if the settings of this machine name the same, or if a person approved it
here. Approvals are in the account's state folder, in one file for each catalog.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.storage.private import require_own, state_folder

Kind = Literal["destination", "log task", "policy"]
#: What to do about a claim that does not count.
HINT = "See what it is, and approve it if it is right: lakebackup approve"


class Unapproved(Refused):
    """A claim of the catalog that this machine's settings do not name and no person approved here."""


@dataclass(frozen=True, slots=True)
class LocalNames:
    """What the settings of this machine name besides the repository itself.

    `destinations`: URIs of other destinations that it may read. `delete_in`: those where a prune also
    deletes. `servers`: Kafka's bootstrap servers. `commands`: source -> the words of the command that backs
    it up, as `policy set --command` has them. `encrypts`: there are keys, so captured events must be
    encrypted.
    """

    destinations: frozenset[str] = frozenset()
    delete_in: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encrypts: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """What a row would make this machine do.

    `name`: the id of a destination, or the name of a task or a source. `value`: all that a person approves.
    `reason`: why the person has to approve it. `is_named`: the settings of this machine name the same.
    """

    kind: Kind
    name: str
    value: Mapping[str, Any]
    reason: str
    is_named: bool = False

    @property
    def stored_value(self) -> Any:
        """The value in the form in which an approval stores it."""
        return json.loads(json.dumps(dict(self.value)))

    @property
    def text(self) -> str:
        """The claim in one line."""
        parts = ", ".join(f"{name} {_text(value)}" for name, value in self.value.items() if value)
        return f"{self.kind} {self.name}: {parts}"


class Approvals:
    """This machine's approvals for one catalog. Raises Refused for a file that other accounts can write."""

    def __init__(self, catalog_uri: str) -> None:
        self._catalog = catalog_uri
        folder = state_folder()
        digest = hashlib.sha256(catalog_uri.encode()).hexdigest()[:32]
        self._path = folder and folder / "approved" / f"{digest}.json"
        self._approved: dict[str, dict[str, Any]] | None = None  # as last read from the file

    def allows(self, claim: Claim) -> bool:
        """Whether the claim counts here."""
        return claim.is_named or _covers(self.value(claim), claim.stored_value)

    def refusal(self, claim: Claim) -> Unapproved | None:
        """An error that says why the claim does not count here, or None when it does."""
        if self.allows(claim):
            return None
        change = "was changed since it was approved here" if self.value(claim) else "was not approved here"
        return Unapproved(f"{claim.text}: this {change}. {claim.reason}", hint=HINT)

    def require(self, claim: Claim) -> None:
        """Raise Unapproved unless the claim counts here."""
        if refusal := self.refusal(claim):
            raise refusal

    def value(self, claim: Claim) -> Any:
        """The value approved under the claim's name, or None."""
        if self._approved is None:
            self._approved = self._read()
        return self._approved.get(claim.kind, {}).get(claim.name)

    def approve(self, claims: Iterable[Claim]) -> None:
        """Record that claims count here. Raises EnvironmentProblem when the record cannot be stored."""
        new = [claim for claim in claims if self.value(claim) != claim.stored_value]
        if not new:
            return
        if self._path is None:
            raise EnvironmentProblem(
                "Nothing can be approved here: this account has no home folder.",
                hint="Set XDG_STATE_HOME, or name what you approve under [approved] in lakebackup.toml.",
            )
        try:
            with _locked(self._path):
                approved = self._read()
                for claim in new:
                    approved.setdefault(claim.kind, {})[claim.name] = claim.stored_value
                _replace(self._path, {"catalog": self._catalog, "approved": approved})
        except OSError as error:
            raise EnvironmentProblem(
                f"{self._path.parent} cannot be written: {error.strerror}.",
                hint="Set XDG_STATE_HOME to a folder of this account.",
            ) from error
        self._approved = approved

    def _read(self) -> dict[str, dict[str, Any]]:
        if self._path is None or not self._path.is_file():
            return {}
        require_own(self._path, "The record of approvals")
        try:
            approved: dict[str, dict[str, Any]] = json.loads(self._path.read_text("utf-8"))["approved"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentProblem(
                f"The record of approvals {self._path} cannot be read: {error}.",
                hint="Delete it, and approve again: lakebackup approve",
            ) from error
        return approved


_local = LocalNames()


def use(names: LocalNames) -> None:
    """Set what the settings of this process name."""
    global _local
    _local = names


def local() -> LocalNames:
    """What the settings of this process name."""
    return _local


def destination_claim(destination: str, uri: str) -> Claim:
    """The claim that the files of a destination lie at a URI and may be read from there."""
    return Claim(
        "destination",
        destination,
        {"uri": uri},
        "Files would be read there, with the credentials of this machine.",
        uri in _local.destinations | _local.delete_in,
    )


def _covers(approved: Any, claimed: Mapping[str, Any]) -> bool:
    """Whether a claim was approved: each value is the same, or, for `topics`, the same or fewer."""
    if approved is None:
        return False
    topics_are_covered = set(claimed.get("topics", ())) <= set(approved.get("topics", ()))
    return topics_are_covered and {**approved, "topics": 0} == {**claimed, "topics": 0}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file as a whole. The caller has its lock."""
    new_file = path.with_suffix(".new")
    new_file.touch(mode=0o600)
    new_file.write_text(json.dumps(content, indent=2, sort_keys=True), "utf-8")
    new_file.replace(path)
