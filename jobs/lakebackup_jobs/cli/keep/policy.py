"""`lakebackup policy …` and `lakebackup hold`: how often a source is backed up, and what is kept."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.options import argument, option
from lakebackup_jobs.cli.values import instant, one_of, required, span
from lakebackup_jobs.cli.verb import Call, verb

app = typer.Typer(help="Say how often a source is backed up and how long that is kept.", no_args_is_help=True)

HOLD = options.examples(
    "lakebackup hold 20261121T1405 --forever --reason 'end of the year'",
    "lakebackup hold 20261121T1405 --until 2027-03-01 --reason 'audit of 2026'",
    "lakebackup hold 20261121T1405 --release --reason 'the audit is over'",
)
_DAY_MS = 86_400_000
_KINDS: dict[str, Literal["differential", "cumulative"]] = {
    "incr-diff": "differential",
    "diff": "differential",
    "incr-accu": "cumulative",
    "accu": "cumulative",
}
Name = Annotated[str, argument("SOURCE", "A source by name, or a topic that only one source has.")]


@app.command(
    "set",
    epilog=options.examples(
        "lakebackup policy set prod --full 'weekly sun 02:00' --incr hourly --window 14d",
        "lakebackup policy set prod --redundancy 4 --min-redundancy 2",
        "lakebackup policy set prod --pattern 'orders\\..*' --pattern payments",
        "lakebackup policy set prod --window none",
    ),
)
@verb(options.FROM)
def set_(
    call: Call,
    name: Name,
    full: Annotated[
        str | None, option("--full WHEN", "Fulls: 'daily 02:30', 'weekly sun 02:00', 'every 6h'; none.")
    ] = None,
    incremental: Annotated[str | None, option("--incr WHEN", "Incrementals, as --full.")] = None,
    incr_mode: Annotated[
        Literal["incr-diff", "incr-accu", "diff", "accu"] | None,
        option("--incr-mode MODE", "incr-diff or incr-accu.", default="incr-diff"),
    ] = None,
    level: Annotated[
        int | None, option("--level N", "Level of the incrementals.", min=1, default="1")
    ] = None,
    window: Annotated[
        str | None,
        option("--window SPAN", "Recovery window: any time of the last 14d can be restored; none."),
    ] = None,
    redundancy: Annotated[
        int | None, option("--redundancy N", "The newest N fulls stay, and all on them; 0: no limit.", min=0)
    ] = None,
    min_redundancy: Annotated[
        int | None, option("--min-redundancy N", "Never leave fewer usable fulls.", min=1, default="1")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        option(
            "--pattern REGEX",
            "Topics that the policy owns, new ones too, as in backup topics; repeatable; none.",
            default="those that backups hold",
        ),
    ] = None,
    note: Annotated[str | None, option("--note TEXT", "Kept with the policy.")] = None,
) -> None:
    """Set a source's policy; what is not said stays as it was.

    With a window and a redundancy, a backup goes when both let it go. Nothing is deleted before
    `lakebackup prune --delete`.
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


@app.command("show", epilog=options.examples("lakebackup policy show --from ./backups"))
@verb(options.ROWS)
def show(call: Call, source: Annotated[str | None, argument("SOURCE", "One source alone.")] = None) -> None:
    """Show the policies in force. What they make of each backup: the view obsolete_backups."""
    call.write(call.reader().query("list_policies", source=source))


@app.command("remove", epilog=options.examples("lakebackup policy remove prod --from ./backups"))
@verb(options.FROM)
def remove(call: Call, name: Name) -> None:
    """Have no policy for a source any more: all its backups are kept."""
    from lakebackup_jobs.upkeep.policies import remove_policy

    call.report.result(remove_policy(*call.places, name))


@verb(options.FROM)
def hold(
    call: Call,
    backup_id: options.BackupId,
    reason: Annotated[str, option("--reason TEXT", "Why; kept in the audit log.")],
    until_ts: Annotated[
        int | None, option("--until TIME", "Keep it until then: 2027-03-01.", parser=instant)
    ] = None,
    forever: Annotated[bool, option("--forever", "Keep it until it is released.")] = False,
    release: Annotated[bool, option("--release", "Do not hold it any more.")] = False,
) -> None:
    """Keep a backup, and what it needs, whatever the policy says."""
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
