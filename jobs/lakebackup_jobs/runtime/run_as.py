"""The account that a server for others runs as. What it may do is tried out before the server starts."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem

PATH = "/usr/bin:/bin"
_DIRECTORIES = 2_000
# Prints the first of the paths that the account can write to, or that it owns and so could make writable.
_WRITES = """
for place do
  if [ -d "$place" ]; then
    probe="$place/.lakebackup-probe-$$"
    if (: > "$probe") 2>/dev/null; then rm -f "$probe"; printf %s "$place"; exit; fi
  fi
  if [ -w "$place" ] || [ -O "$place" ]; then printf %s "$place"; exit; fi
done
"""
# Prints the first of the paths that the account cannot read.
_READS = """
for place do
  if [ ! -r "$place" ]; then printf %s "$place"; exit; fi
done
"""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this machine. `switch`: arguments for subprocess to run a command as this account."""

    name: str
    uid: int
    gid: int

    @property
    def switch(self) -> dict[str, Any]:
        if os.geteuid() == self.uid:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def find_account(name: str | None) -> Account:
    """Return the account of that name. Without a name: `nobody` for root, else the one that runs this.

    Raises NotFound for an unknown name, UsageProblem for another account than its own unless it runs as root.
    """
    root = os.geteuid() == 0
    try:
        entry = pwd.getpwnam(name or "nobody") if name or root else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise NotFound(f"There is no account {name or 'nobody'} on this machine.") from None
    if not root and entry.pw_uid != os.geteuid():
        raise UsageProblem(f"Only root can run a server as {entry.pw_name}.", hint="Leave out --account.")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def require_reader(account: Account, catalog: Path, destinations: Iterable[Path]) -> None:
    """Check that the account can read the catalog, and cannot write to it or to the destinations.

    Raises Refused when the account can write to one of these folders, or to a folder above or below it;
    EnvironmentProblem when it cannot read the catalog. Checks up to 2,000 folders below each root, and one
    file of each folder.
    """
    roots = [catalog, *destinations]
    writable = _probe(account, _WRITES, (path for root in roots for path in (*_above(root), *_below(root))))
    if writable:
        raise Refused(
            f"The account {account.name} can write to {writable}, and so could everybody who connects.",
            hint="Take that right away (chown -R root, chmod -R go-w), or have root run the server as an "
            "account that may only read: --account NAME.",
        )
    unreadable = _probe(account, _READS, _below(catalog))
    if unreadable:
        raise EnvironmentProblem(
            f"The account {account.name} cannot read {unreadable}.",
            hint="Let it read the catalog (chmod -R o+rX, or a group; for what is written later, mode under "
            "[storage] in lakebackup.toml), or choose another: --account NAME.",
        )


def _probe(account: Account, script: str, paths: Iterable[Path]) -> str:
    """Run a script as the account with the paths as arguments; returns what it prints."""
    process: subprocess.CompletedProcess[str] = subprocess.run(
        ["/bin/sh", "-c", script, "probe", *map(str, paths)],
        capture_output=True, text=True, check=False, cwd="/", env={"PATH": PATH}, **account.switch,
    )  # fmt: skip
    if process.returncode:
        raise EnvironmentProblem(f"Nothing can be run as {account.name}: {process.stderr.strip()}")
    return process.stdout


def _above(root: Path) -> Iterator[Path]:
    """Yield the folders above `root`: an account that can write to one of them could replace what is in it.

    Folders with the sticky bit, such as /tmp, are left out: only owners can replace something there.
    """
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
