"""The tree of commands. One file a verb; none imports anything slow before it runs."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from lakebackup_jobs.cli import archive, backup, catalog, log, restore
from lakebackup_jobs.cli.flags.options import examples, option
from lakebackup_jobs.cli.keep import compact, config, due, manage, merge, policy, prune, verify
from lakebackup_jobs.cli.look import diff, files, list_, report, serve, show, sql
from lakebackup_jobs.cli.verb import Verb, add

# In the order in which a person meets them.
_PANELS: dict[str, list[Verb | typer.Typer]] = {
    "Back up and restore": [backup.app, restore.app, log.app, verify.verify],
    "Look": [list_.list_, show.show, files.files, diff.diff, sql.sql, report.report, serve.app],
    "Keep": [
        compact.compact, merge.merge, prune.prune, policy.app, policy.hold, due.due, archive.app, catalog.app,
        config.config,
    ],
}  # fmt: skip


_ORDER = [one.name if isinstance(one, Verb) else one.info.name for panel in _PANELS.values() for one in panel]


class _InOrder(TyperGroup):
    """Commands in their order, hidden ones last; typer puts groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=[*_ORDER, manage.manage.name].index)


app = typer.Typer(
    cls=_InOrder,
    name="lakebackup",
    help="Back up Kafka topics into files and a catalog you can query; restore them to any covered time.",
    epilog=examples(
        "lakebackup backup topics orders --bootstrap-server localhost:9092 --to ./backups\n"
        "lakebackup list --from ./backups\n"
        "lakebackup restore topics orders --from ./backups --to kafka://localhost:9092 --to-time -2h"
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        add(app, _command, rich_help_panel=_panel)
add(app, manage.manage, hidden=True)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"lakebackup {version('lakebackup')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = option("--version", "Print the version.", False, callback=_version, is_eager=True),
) -> None:
    pass
