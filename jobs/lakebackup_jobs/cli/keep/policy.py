"""`lakebackup policy …` and `lakebackup hold`: how often a source is backed up, and what is kept."""

from __future__ import annotations

from typing import Literal

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import instant, one_of, required, span
from lakebackup_jobs.cli.verb import Call, group, verb

_DAY_MS = 86_400_000
_KINDS: dict[str, Literal["differential", "cumulative"]] = {
    "incr-diff": "differential",
    "diff": "differential",
    "incr-accu": "cumulative",
    "accu": "cumulative",
}
NAME = argument("SOURCE", "A source by name, or a topic that only one source has.", ...)


@verb(options.FROM)
def set_(
    call: Call,
    name: str = NAME,
    full: str | None = option("--full WHEN", "Fulls: 'daily 02:30', 'weekly sun 02:00', 'every 6h'; none."),
    incremental: str | None = option("--incr WHEN", "Incrementals, as --full."),
    incr_mode: Literal["incr-diff", "incr-accu", "diff", "accu"] | None = option(
        "--incr-mode MODE", "incr-diff or incr-accu.", show_default="incr-diff"
    ),
    level: int | None = option("--level N", "Level of the incrementals.", min=1, show_default="1"),
    window: str | None = option(
        "--window SPAN", "Recovery window: any time of the last 14d can be restored; none."
    ),
    redundancy: int | None = option(
        "--redundancy N", "The newest N fulls stay, and all on them; 0: no limit.", min=0
    ),
    min_redundancy: int | None = option(
        "--min-redundancy N", "Never leave fewer usable fulls.", min=1, show_default="1"
    ),
    pattern: list[str] | None = option(
        "--pattern REGEX",
        "Topics that the policy owns, new ones too, as in backup topics; repeatable; none.",
        show_default="those that backups hold",
    ),
    note: str | None = option("--note TEXT", "Kept with the policy."),
) -> None:
    r"""Set a source's policy; what is not said stays as it was.

    With a window and a redundancy, a backup goes when both let it go. Nothing is deleted before
    `lakebackup prune --delete`.

    Examples:
        lakebackup policy set prod --full 'weekly sun 02:00' --incr hourly --window 14d
        lakebackup policy set prod --redundancy 4 --min-redundancy 2
        lakebackup policy set prod --pattern 'orders\..*' --pattern payments
        lakebackup policy set prod --window none
    """
    from lakebackup_jobs.upkeep.policies import Change, set_policy

    change = call.request(
        Change,
        kind=_KINDS[incr_mode] if incr_mode else None,
        window_days=_days(window),
        patterns=None if pattern is None else () if pattern == ["none"] else tuple(pattern),
    )
    if change == Change():
        raise UsageProblem(
            "Nothing to change: no flag of the policy is given.", hint="See: lakebackup policy set --help"
        )
    call.report.result(set_policy(*call.places, name, change))


@verb(options.ROWS)
def show(call: Call, source: str | None = argument("SOURCE", "One source alone.")) -> None:
    """Show the policies in force. What they make of each backup: the view obsolete_backups.

    Examples:
        lakebackup policy show --from ./backups
    """
    call.write(call.reader().query("list_policies", source=source))


@verb(options.FROM)
def remove(call: Call, name: str = NAME) -> None:
    """Have no policy for a source any more: all its backups are kept.

    Examples:
        lakebackup policy remove prod --from ./backups
    """
    from lakebackup_jobs.upkeep.policies import remove_policy

    call.report.result(remove_policy(*call.places, name))


@verb(options.FROM)
def hold(
    call: Call,
    backup_id: str = options.BACKUP_ID,
    reason: str = option("--reason TEXT", "Why; kept in the audit log.", ...),
    until_ts: int | None = option("--until TIME", "Keep it until then: 2027-03-01.", parser=instant),
    forever: bool = switch("--forever", "Keep it until it is released."),
    release: bool = switch("--release", "Do not hold it any more."),
) -> None:
    """Keep a backup, and what it needs, whatever the policy says.

    Examples:
        lakebackup hold 20261121T1405 --forever --reason 'end of the year'
        lakebackup hold 20261121T1405 --until 2027-03-01 --reason 'audit of 2026'
        lakebackup hold 20261121T1405 --release --reason 'the audit is over'
    """
    ways = {"until": until_ts is not None, "forever": forever, "release": release}
    required(
        one_of(ways, otherwise=""),
        "--until, --forever or --release",
        "how long is it kept?",
        hint="Give one of them.",
    )
    from lakebackup_jobs.upkeep import policies

    call.report.result(
        policies.hold(*call.places, backup_id, reason=reason, until_ts=until_ts, release=release)
    )


def _days(window: str | None) -> int | None:
    """A window in whole days, 0 for none; None stays None. Raises UsageProblem."""
    if window is None or window == "none":
        return None if window is None else 0
    ms = span(window) or 0
    if ms % _DAY_MS or not ms:
        raise UsageProblem(
            f"--window {window!r} is not a number of whole days, at least 1.", hint="Write 14d, 4w; none."
        )
    return ms // _DAY_MS


app = group("policy", "Say how often a source is backed up and how long that is kept.", set_, show, remove)
