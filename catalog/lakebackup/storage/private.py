"""Files of this account alone: those that say what it runs, and secrets."""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup.errors import Refused

if TYPE_CHECKING:
    from os import PathLike


def state_folder() -> Path | None:
    """Where this account keeps what it decided; None where it has no home.

    `lakebackup` below XDG_STATE_HOME, else ~/.local/state/lakebackup.
    """
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "lakebackup"
    home = os.environ.get("HOME") or home_folder()
    return Path(home) / ".local/state/lakebackup" if home else None


def home_folder() -> str | None:
    """The home of this account, as the system has it; None for one without a name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_dir
    return None


def require_own(path: str | PathLike[str], label: str, *, secret: bool = False) -> None:
    """Refuse a file that another account owns or may write; a `secret` also where others may read it.

    `label`: the words for the file in the error. Files of root and, under sudo, of the account that called it
    are as good as one's own. A file that is not there is no error here. Raises Refused.
    """
    try:
        status = Path(path).stat()
    except OSError:
        return
    own = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        own.add(int(os.environ["SUDO_UID"]))
    if status.st_uid not in own:
        raise Refused(
            f"{label} {path} belongs to another account ({_account(status.st_uid)}).",
            hint=f"Use a file of your own, or make it yours: chown {_account(os.geteuid())} {path}",
        )
    access = status.st_mode & 0o077
    if _is_alone_in(status.st_gid, status.st_uid) or (status.st_uid == 0 and status.st_gid in os.getgroups()):
        access &= ~(0o050 if status.st_uid == 0 and status.st_uid != os.geteuid() else 0o070)
    if secret and access & 0o044:
        raise Refused(
            f"Others may read {label[:1].lower()}{label[1:]} {path} ({stat.filemode(status.st_mode)}).",
            hint=f"Take that right away: chmod go= {path}",
        )
    if access & 0o022:
        raise Refused(
            f"Others may write {label[:1].lower()}{label[1:]} {path} ({stat.filemode(status.st_mode)}).",
            hint=f"Take that right away: chmod go-w {path}",
        )


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_alone_in(gid: int, uid: int) -> bool:
    """Whether a group is one of this account alone, as many systems give each account."""
    import grp

    try:
        group = grp.getgrgid(gid)
        account = pwd.getpwuid(uid)
    except KeyError:
        return False
    return (
        account.pw_gid == gid
        and group.gr_name == account.pw_name
        and not set(group.gr_mem) - {account.pw_name}
    )
