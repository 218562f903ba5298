"""Check files that only this account may write or read: those that say what it runs, and secrets."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress
from os import PathLike
from pathlib import Path

from lakebackup.errors import Refused


def state_folder() -> Path | None:
    """The folder for this account's own state, such as its approvals; None if the account has no home.

    It is `lakebackup` below XDG_STATE_HOME, else ~/.local/state/lakebackup.
    """
    if state_home := os.environ.get("XDG_STATE_HOME"):
        return Path(state_home) / "lakebackup"
    home = os.environ.get("HOME") or home_folder()
    return Path(home) / ".local/state/lakebackup" if home else None


def home_folder() -> str | None:
    """The home folder of this account in the system's list of users; None if the account is not in it."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_dir
    return None


def require_own(path: str | PathLike[str], label: str, *, secret: bool = False) -> None:
    """Raise Refused for a file that another account owns or may write, and for a `secret` that it may read.

    `label` names the file in the error. Files of root count as own files, and so do those of the account that
    called sudo. A file that does not exist is no error.
    """
    try:
        status = Path(path).stat()
    except OSError:
        return
    trusted_uids = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        trusted_uids.add(int(os.environ["SUDO_UID"]))
    if status.st_uid not in trusted_uids:
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
    """Whether the group `gid` has only the account `uid`, as on systems with one group per account."""
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
