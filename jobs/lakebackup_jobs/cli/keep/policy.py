"""`lakebackup policy …` and `lakebackup hold`: backup schedules, retention and holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import typer

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.rows.base import QUEUES
from lakebackup.rules.kinds import KINDS, require_known
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli.app import app
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import instant, one_of, required, span
from lakebackup_jobs.cli.output.rows import Brief
from lakebackup_jobs.cli.output.usage import usage_problem
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.targets import full_path
from lakebackup_jobs.upkeep import policies
from lakebackup_jobs.upkeep.policies import Change, remove_policy, require_schedulable, set_policy

_DAY_MS = 86_400_000
_KINDS: dict[str, Literal["differential", "cumulative"]] = {
    "incr-diff": "differential",
    "diff": "differential",
    "incr-accu": "cumulative",
    "accu": "cumulative",
}
COLUMNS = (
    "source",
    "full_schedule",
    "incremental_schedule",
    "incremental_kind",
    "level",
    "window_days",
    "redundancy",
    "min_redundancy",
    "keep",
    "time_zone",
    "drill_schedule",
    "patterns",
    "command",
    "note",
    "actor",
    "time",
)
_SCHEDULE_PANEL, _CONTENTS_PANEL, _RETENTION_PANEL = "When to back up", "What to back up", "What to keep"
# The largest count in a policy. A larger one is a typing error, and may not fit the catalog's column.
_MAX_COUNT = 1_000_000
_RULE: dict[str, Any] = {"min": 0, "max": _MAX_COUNT, "panel": _RETENTION_PANEL}
# The names that help gives to flags' values that are paths.
_PATH_METAVARS = ("PATH", "FOLDER", "FILE")
# The flags that a due run adds itself.
_FLAGS_OF_DUE = ("mode", "repo", "catalog", "dry_run", "explain", "json")
NAME = argument(
    "SOURCE", "A source by name, or a topic that only one source has.", ..., autocompletion=completion.sources
)


@verb(options.REPO)
def set_(
    call: Call,
    name: str = NAME,
    full: str | None = option(
        "--full WHEN",
        "When to run fulls: 'daily 02:30', 'weekly sun 02:00', 'every 6h', or cron's '30 2 * * mon-fri'; "
        "none.",
        panel=_SCHEDULE_PANEL,
    ),
    incremental: str | None = option(
        "--incr WHEN", "When to run incrementals, written like --full.", panel=_SCHEDULE_PANEL
    ),
    incr_mode: Literal["incr-diff", "incr-accu", "diff", "accu"] | None = option(
        "--incr-mode MODE", "incr-diff or incr-accu.", show_default="incr-diff", panel=_SCHEDULE_PANEL
    ),
    level: int | None = option(
        "--level N",
        "Level of an incremental backup; a full is level 0.",
        min=1,
        max=_MAX_COUNT,
        show_default="1",
        panel=_SCHEDULE_PANEL,
    ),
    drill: str | None = option(
        "--drill WHEN", "When to run restore drills, written like --full.", panel=_SCHEDULE_PANEL
    ),
    time_zone: str | None = option(
        "--time-zone ZONE",
        "Time zone of schedules and keep rules, such as Europe/Berlin; none.",
        show_default="UTC",
        panel=_SCHEDULE_PANEL,
    ),
    window: str | None = option(
        "--window SPAN",
        "Recovery window: how far back any time can be restored, such as 14d; none.",
        panel=_RETENTION_PANEL,
    ),
    redundancy: int | None = option(
        "--redundancy N",
        "Keep the newest N fulls and all backups that depend on them; 0: no limit.",
        **_RULE,
    ),
    keep_last: int | None = option(
        "--keep-last N", "Keep the newest N backups; 0 turns the rule off.", **_RULE
    ),
    keep_hourly: int | None = option(
        "--keep-hourly N", "Keep the newest backup of each of the last N hours that have one.", **_RULE
    ),
    keep_daily: int | None = option("--keep-daily N", "Like --keep-hourly, for days.", **_RULE),
    keep_weekly: int | None = option(
        "--keep-weekly N", "Like --keep-hourly, for weeks, which begin on Monday.", **_RULE
    ),
    keep_monthly: int | None = option("--keep-monthly N", "Like --keep-hourly, for months.", **_RULE),
    keep_yearly: int | None = option("--keep-yearly N", "Like --keep-hourly, for years.", **_RULE),
    keep_differentials: int | None = option(
        "--keep-differentials N",
        "Of the backups that --redundancy keeps, keep those that depend on the newest N fulls and "
        "differentials; 0: all.",
        **_RULE,
    ),
    min_redundancy: int | None = option(
        "--min-redundancy N",
        "Always keep at least N usable fulls.",
        show_default="1",
        **{**_RULE, "min": 1},
    ),
    pattern: list[str] | None = option(
        "--pattern REGEX",
        options.TOPICS_THAT_MATCH + "Also new ones; none: no patterns.",
        show_default="the topics in backups",
        panel=_CONTENTS_PANEL,
    ),
    command: str | None = option(
        "--command 'VERB …'",
        "What a due run backs up, if not topics, as after `lakebackup backup`: 'snapshot FOLDER'; none. "
        "Its paths are stored as absolute ones.",
        panel=_CONTENTS_PANEL,
    ),
    note: str | None = option("--note TEXT", "A note to store with it."),
) -> None:
    r"""Set a source's policy. Settings without a flag stay unchanged.

    A backup stays if any rule keeps it, with everything it depends on. A policy alone deletes nothing and
    runs nothing: `lakebackup prune --delete` and `lakebackup due --run` do.

    Examples:
        lakebackup policy set prod --full 'weekly sun 02:00' --incr hourly --window 14d
        lakebackup policy set prod --redundancy 4 --min-redundancy 2
        lakebackup policy set prod --pattern 'orders\..*' --pattern payments
        lakebackup policy set prod --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --time-zone Europe/Berlin
        lakebackup policy set store --command 'snapshot /var/data/rocksdb' --incr '15 * * * *' --drill weekly
        lakebackup policy set prod --window none
    """
    change = call.request(
        Change,
        kind=_KINDS[incr_mode] if incr_mode else None,
        window_days=_days(window),
        patterns=None if pattern is None else () if pattern == ["none"] else tuple(pattern),
        command=None if command is None else () if command == "none" else _arguments(command),
    )
    if change == Change():
        raise UsageProblem(
            "Nothing to change: no flag of the policy is given.", hint="See: lakebackup policy set --help"
        )
    policy = set_policy(*call.repository_and_catalog, name, change)
    call.report.result(policy)
    _approve(call, policy["source"])


@verb(options.ROWS)
def show(
    call: Call,
    source: str | None = argument("SOURCE", "Only this source.", autocompletion=completion.sources),
) -> None:
    """Show the policies. The view obsolete_backups shows what they mean for each backup.

    Examples:
        lakebackup policy show --repo ./backups
    """
    reader = call.reader()
    policies = reader.query("list_policies", source=source).read_all()
    if source and not policies.num_rows:
        require_known(reader, source)
    brief = Brief(COLUMNS, ("time", "actor", "incremental_kind", "level", "note", "min_redundancy"))
    call.write(policies.to_reader(), brief=brief)


@verb(options.REPO)
def remove(call: Call, name: str = NAME) -> None:
    """Remove a source's policy. All its backups are then kept.

    Examples:
        lakebackup policy remove prod --repo ./backups
    """
    call.report.result(remove_policy(*call.repository_and_catalog, name))


@verb(options.REPO)
def hold(
    call: Call,
    backup_id: str = options.BACKUP_ID,
    reason: str = option("--reason TEXT", "The reason, for the audit log.", ...),
    until_ts: int | None = option("--until TIME", "Keep it until this time: 2027-03-01.", parser=instant),
    forever: bool = switch("--forever", "Keep it until it is released."),
    release: bool = switch("--release", "End the hold."),
) -> None:
    """Keep a backup and everything it depends on, whatever the policy says.

    Examples:
        lakebackup hold 20261121T1405 --forever --reason 'end of the year'
        lakebackup hold 20261121T1405 --until 2027-03-01 --reason 'audit of 2026'
        lakebackup hold 20261121T1405 --release --reason 'the audit is over'
    """
    modes = {"until": until_ts is not None, "forever": forever, "release": release}
    required(
        one_of(modes, otherwise=""),
        "--until, --forever or --release",
        "how long to keep it?",
        hint="Give one of them.",
    )

    call.report.result(
        policies.hold(
            *call.repository_and_catalog, backup_id, reason=reason, until_ts=until_ts, release=release
        )
    )


def _approve(call: Call, source: str) -> None:
    """Approve the policy on this machine, because the user who set it here agrees to its runs."""
    try:
        policies.approve(CatalogReader.require(*call.repository_and_catalog), source)
    except EnvironmentProblem as problem:
        call.warn(f"`due --run` will not take its backups here: {problem.message} {problem.hint}")


def _days(window: str | None) -> int | None:
    """A window in whole days; 0 for "none", None for None. Raises UsageProblem for other spans."""
    if window is None or window == "none":
        return None if window is None else 0
    ms = span("--window", window) or 0
    if ms % _DAY_MS or not ms:
        raise UsageProblem(f"--window {window!r} is not a whole number of days.", hint="Write 14d, 4w; none.")
    return ms // _DAY_MS


def _arguments(text: str) -> tuple[str, ...]:
    """Split a text into arguments of `lakebackup backup`, and check them with its parser.

    Paths become absolute. Raises UsageProblem when `lakebackup backup` would refuse the arguments, or when a
    due run adds one of them itself.
    """
    verbs = sorted(kind.scheduled for kind in KINDS.values() if kind.scheduled)
    try:
        verb_, *other_words = shlex.split(text) or [""]
    except ValueError as error:
        raise UsageProblem(f"--command {text!r} cannot be read: {error}.") from None
    if verb_ not in verbs:
        raise UsageProblem(
            f"--command {text!r} does not begin with {' or '.join(verbs)}.",
            hint="Write what follows `lakebackup backup`; topics are named by --pattern.",
        )
    command = typer.main.get_command(app).commands["backup"].commands[verb_]  # type: ignore[attr-defined]
    try:
        # Passes the program's settings, because a command keeps the help flags of its first context.
        context = command.make_context(
            f"lakebackup backup {verb_}", list(other_words), **(app.info.context_settings or {})
        )
    except typer.TyperException as error:
        problem = usage_problem(error)
        raise UsageProblem(f"--command {text!r}: {problem.message}", hint=problem.hint) from None
    forbidden = _FLAGS_OF_DUE if verb_ == KINDS[QUEUES].scheduled else (*_FLAGS_OF_DUE, "source")
    for name in forbidden:
        parameter_source = context.get_parameter_source(name)
        if parameter_source is not None and parameter_source.name == "COMMANDLINE":
            raise UsageProblem(
                f"--command {text!r} has --{name.replace('_', '-')}, which a due run gives itself.",
                hint="Leave it out.",
            )
    words = (verb_, *_with_absolute_paths(command, context, other_words))
    require_schedulable(words)
    return words


def _with_absolute_paths(command: Any, context: Any, words: Sequence[str]) -> Iterator[str]:
    """Yields a verb's arguments with absolute paths, because a due run starts in another folder."""
    values_by_name, _, _ = command.make_parser(context).parse_args(list(words))
    for parameter in command.params:
        values = values_by_name.get(parameter.name, ())
        for value in values if isinstance(values, list | tuple) else [values]:
            if parameter.param_type_name == "option":
                yield parameter.opts[0]
            if not getattr(parameter, "is_flag", False):
                yield _absolute(value, parameter.metavar)


def _absolute(value: str, metavar: str) -> str:
    if metavar == "ROLE=FILE":
        role, _, file = value.partition("=")
        return f"{role}={full_path(file)}" if file else value
    return full_path(value) if metavar in _PATH_METAVARS else value
