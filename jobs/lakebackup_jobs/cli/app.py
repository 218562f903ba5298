"""The tree of commands. One file a verb; none imports anything slow before it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lakebackup_jobs.cli import archive, backup, catalog, log, restore, verify
from lakebackup_jobs.cli.keep import compact, config, due, manage, merge, policy, prune
from lakebackup_jobs.cli.look import diff, files, list_, report, serve, show, sql
from lakebackup_jobs.cli.options import examples, option

_ORDER = (
    "backup", "restore", "log", "verify", "list", "show", "files", "diff", "sql", "report", "serve",
    "compact", "merge", "prune", "policy", "hold", "due", "archive", "catalog", "config", "manage",
)  # fmt: skip


class _InOrder(TyperGroup):
    """Commands in the order a person meets them; typer puts groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=_ORDER.index)


app = typer.Typer(
    cls=_InOrder,
    name="lakebackup",
    help="Back up Kafka topics into files and a catalog you can query; restore them to any covered time.",
    epilog=examples(
        "lakebackup backup topics orders --bootstrap-server localhost:9092 --to ./backups",
        "lakebackup list --from ./backups",
        "lakebackup restore topics orders --from ./backups --to kafka://localhost:9092 --to-time -2h",
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_WORK, _LOOK, _KEEP = "Back up and restore", "Look", "Keep"
app.add_typer(backup.app, name="backup", rich_help_panel=_WORK)
app.add_typer(restore.app, name="restore", rich_help_panel=_WORK)
app.add_typer(log.app, name="log", rich_help_panel=_WORK)
app.command("verify", rich_help_panel=_WORK, epilog=verify.EXAMPLES)(verify.verify)
app.command("list", rich_help_panel=_LOOK, epilog=list_.EXAMPLES)(list_.list_backups)
app.command("show", rich_help_panel=_LOOK, epilog=show.EXAMPLES)(show.show)
app.command("files", rich_help_panel=_LOOK, epilog=files.EXAMPLES)(files.files)
app.command("diff", rich_help_panel=_LOOK, epilog=diff.EXAMPLES)(diff.diff)
app.command("sql", rich_help_panel=_LOOK, epilog=sql.EXAMPLES)(sql.sql)
app.command("report", rich_help_panel=_LOOK, epilog=report.EXAMPLES)(report.report)
app.add_typer(serve.app, name="serve", rich_help_panel=_LOOK)
app.command("compact", rich_help_panel=_KEEP, epilog=compact.EXAMPLES)(compact.compact)
app.command("merge", rich_help_panel=_KEEP, epilog=merge.EXAMPLES)(merge.merge)
app.command("prune", rich_help_panel=_KEEP, epilog=prune.EXAMPLES)(prune.prune)
app.add_typer(policy.app, name="policy", rich_help_panel=_KEEP)
app.command("hold", rich_help_panel=_KEEP, epilog=policy.HOLD)(policy.hold)
app.command("manage", hidden=True)(manage.manage)
app.command("due", rich_help_panel=_KEEP, epilog=due.EXAMPLES)(due.due)
app.add_typer(archive.app, name="archive", rich_help_panel=_KEEP)
app.add_typer(catalog.app, name="catalog", rich_help_panel=_KEEP)
app.command("config", rich_help_panel=_KEEP, epilog=config.EXAMPLES)(config.config)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"lakebackup {version('lakebackup')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, option("--version", "Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
