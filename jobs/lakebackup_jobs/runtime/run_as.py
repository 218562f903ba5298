"""The account that a server for others runs under: what it may not do is tried out before anything starts."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PATH = "/usr/bin:/bin"
_DIRECTORIES = 2_000
# Prints the first of the places where the account can write, or could make itself able to.
_WRITES = """
for place do
  if [ -d "$place" ]; then
    probe="$place/.lakebackup-probe-$$"
    if (: > "$probe") 2>/dev/null; then rm -f "$probe"; printf %s "$place"; exit; fi
  fi
  if [ -w "$place" ] || [ -O "$place" ]; then printf %s "$place"; exit; fi
done
"""
# Prints the first of the places that the account cannot read.
_READS = """
for place do
  if [ ! -r "$place" ]; then printf %s "$place"; exit; fi
done
"""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this machine; `switch` is what subprocess takes to run as it."""

    name: str
    uid: int
    gid: int

    @property
    def switch(self) -> dict[str, Any]:
        if os.geteuid() == self.uid:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def find_account(name: str | None) -> Account:
    """The account of that name; without one `nobody` for root, else the account that runs this.

    Raises NotFound, UsageProblem (only root can become somebody else).
    """
    root = os.geteuid() == 0
    try:
        found = pwd.getpwnam(name or "nobody") if name or root else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise NotFound(f"There is no account {name or 'nobody'} on this machine.") from None
    if not root and found.pw_uid != os.geteuid():
        raise UsageProblem(f"Only root can run a server as {found.pw_name}.", hint="Leave out --account.")
    return Account(found.pw_name, found.pw_uid, found.pw_gid)


def require_reader(account: Account, catalog: Path, destinations: Iterable[Path]) -> None:
    """Raises Refused when the account can write below one of these folders, EnvironmentProblem when it cannot
    read the catalog's. Folders are tried down to the 2,000th, each with one of its files."""
    held = [catalog, *destinations]
    writes = _first(account, _WRITES, (place for root in held for place in (*_above(root), *_below(root))))
    if writes:
        raise Refused(
            f"The account {account.name} can write to {writes}, and so could everybody who connects.",
            hint="Take that right away (chown -R root, chmod -R go-w), or have root run the server as an "
            "account that may only read: --account NAME.",
        )
    unread = _first(account, _READS, _below(catalog))
    if unread:
        raise EnvironmentProblem(
            f"The account {account.name} cannot read {unread}.",
            hint="Let it read the catalog (chmod -R o+rX, or a group; for what is written later, mode under "
            "[storage] in lakebackup.toml), or choose another: --account NAME.",
        )


def _first(account: Account, probe: str, places: Iterable[Path]) -> str:
    tried: subprocess.CompletedProcess[str] = subprocess.run(
        ["/bin/sh", "-c", probe, "probe", *map(str, places)],
        capture_output=True, text=True, check=False, cwd="/", env={"PATH": PATH}, **account.switch,
    )  # fmt: skip
    if tried.returncode:
        raise EnvironmentProblem(f"Nothing can be run as {account.name}: {tried.stderr.strip()}")
    return tried.stdout


def _above(root: Path) -> Iterator[Path]:
    """Whoever may write to a folder above could put another in its place, but for /tmp's kind (sticky)."""
    for parent in root.parents:
        if not parent.stat().st_mode & 0o1000:
            yield parent


def _below(root: Path) -> Iterator[Path]:
    for number, (folder, _, files) in enumerate(os.walk(root)):
        if number == _DIRECTORIES:
            return
        yield Path(folder)
        if files:
            yield Path(folder) / min(files)
