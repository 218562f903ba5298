"""What rows of a catalog may have this machine do: docs/security.md has the rules.

Whoever can write the storage can write any row. A row that names a server, another destination or a command
therefore makes a claim, which counts only if the settings of this machine name the same, or if a person
approved it here. What was approved is in the account's state folder, a file for each catalog.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.storage.private import require_own, state_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Kind = Literal["destination", "log task", "policy"]
#: What to do about a claim that does not count.
HINT = "See what it is, and approve it if it is right: lakebackup approve"


class Unapproved(Refused):
    """A row of the catalog claims what neither settings of this machine name nor a person approved here."""


@dataclass(frozen=True, slots=True)
class LocalNames:
    """What the settings of this machine name, beside the repository itself.

    `destinations`: URIs of other destinations that it may read; `delete_in`: those where a prune deletes too.
    `servers`: Kafka's bootstrap servers. `commands`: what is backed up of a source, as `policy set --command`
    has it. `encrypts`: whether there are keys, so that what is captured has to be encrypted.
    """

    destinations: frozenset[str] = frozenset()
    delete_in: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encrypts: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """What a row would have this machine do. `name`: of a destination (its id), a task or a source. `value`:
    what is approved, all of it. `reason`: why a person is asked. `is_named`: the settings name the same."""

    kind: Kind
    name: str
    value: Mapping[str, Any]
    reason: str
    is_named: bool = False

    @property
    def stored(self) -> Any:
        """The value as it is stored when it is approved."""
        return json.loads(json.dumps(dict(self.value)))

    @property
    def text(self) -> str:
        """The claim in one line."""
        parts = ", ".join(f"{name} {_text(value)}" for name, value in self.value.items() if value)
        return f"{self.kind} {self.name}: {parts}"


class Approvals:
    """What was approved on this machine for one catalog. Raises Refused for a file that others may write."""

    def __init__(self, catalog_uri: str) -> None:
        self._catalog = catalog_uri
        folder = state_folder()
        digest = hashlib.sha256(catalog_uri.encode()).hexdigest()[:32]
        self._path = folder and folder / "approved" / f"{digest}.json"
        self._approved: dict[str, dict[str, Any]] | None = None  # as it was read last

    def allows(self, claim: Claim) -> bool:
        """Whether the claim counts here."""
        return claim.is_named or _covers(self.value(claim), claim.stored)

    def refusal(self, claim: Claim) -> Unapproved | None:
        """Why the claim does not count here; None: it does."""
        if self.allows(claim):
            return None
        change = "was changed since it was approved here" if self.value(claim) else "was not approved here"
        return Unapproved(f"{claim.text}: this {change}. {claim.reason}", hint=HINT)

    def require(self, claim: Claim) -> None:
        """Raise Unapproved unless the claim counts here."""
        if refusal := self.refusal(claim):
            raise refusal

    def value(self, claim: Claim) -> Any:
        """What was approved under the claim's name; None: nothing."""
        if self._approved is None:
            self._approved = self._read()
        return self._approved.get(claim.kind, {}).get(claim.name)

    def approve(self, claims: Iterable[Claim]) -> None:
        """Record that claims count here. Raises EnvironmentProblem where that cannot be stored."""
        new = [claim for claim in claims if self.value(claim) != claim.stored]
        if not new:
            return
        if self._path is None:
            raise EnvironmentProblem(
                "Nothing can be approved here: this account has no home folder.",
                hint="Set XDG_STATE_HOME, or name it under [approved] in lakebackup.toml.",
            )
        with _locked(self._path):
            approved = self._read()
            for claim in new:
                approved.setdefault(claim.kind, {})[claim.name] = claim.stored
            _replace(self._path, {"catalog": self._catalog, "approved": approved})
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
    """From now on the settings of this process name these."""
    global _local
    _local = names


def local() -> LocalNames:
    """What the settings of this process name."""
    return _local


def destination_claim(destination: str, uri: str) -> Claim:
    """That the files of a destination lie at a URI, from which they are read."""
    return Claim(
        "destination",
        destination,
        {"uri": uri},
        "Files would be read there, with the credentials of this machine.",
        uri in _local.destinations | _local.delete_in,
    )


def _covers(approved: Any, claimed: Mapping[str, Any]) -> bool:
    """Whether all that is claimed was approved: the same, of `topics` the same or fewer."""
    if approved is None:
        return False
    fewer = set(claimed.get("topics", ())) <= set(approved.get("topics", ()))
    return fewer and {**approved, "topics": 0} == {**claimed, "topics": 0}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EnvironmentProblem(
            f"{path.parent} cannot be written: {error.strerror}.",
            hint="Set XDG_STATE_HOME to a folder of this account.",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    import tempfile  # slow to load

    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(content, file, indent=2, sort_keys=True)
    Path(file.name).replace(path)
