"""`lakebackup config`: the settings in force."""

from __future__ import annotations

from json import dumps

import typer

from lakebackup_jobs.cli.verb import Call, verb


@verb()
def config(call: Call) -> None:
    """Show the settings in force. Secrets are masked.

    The environment overrides lakebackup.toml, which overrides the defaults.


    Examples:
        lakebackup config
        LAKEBACKUP_CODEC=snappy lakebackup config --json
    """
    settings = call.settings.masked()
    if call.json:
        typer.echo(dumps(settings))
        return
    for name, value in settings.items():
        table = (
            {f'{name}."{key}"': item for key, item in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        for key, item in table.items():
            if item is not None:
                typer.echo(f"{key} = {dumps(item, ensure_ascii=False)}")  # these values look the same in TOML
