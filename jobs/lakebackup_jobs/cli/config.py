"""`lakebackup config`: the settings in force."""

from __future__ import annotations

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import settings

EXAMPLES = options.examples("lakebackup config", "LAKEBACKUP_CODEC=snappy lakebackup config --json")


def config(
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Show the settings in force: environment before lakebackup.toml before defaults. Secrets are masked."""
    shown = settings(config).shown()
    if json:
        from json import dumps

        typer.echo(dumps(shown))
        return
    for name, value in shown.items():
        table = (
            {f'{name}."{key}"': item for key, item in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        for key, item in table.items():
            if item is not None:
                typer.echo(f"{key} = {item}" if isinstance(item, int | float) else f'{key} = "{item}"')
