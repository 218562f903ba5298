"""`lakebackup catalog …`: the tables themselves."""

from __future__ import annotations

from typing import Any

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, session_of, settings

app = typer.Typer(help="Look after the catalog's tables.", no_args_is_help=True)


@app.command("rebuild", epilog=options.examples("lakebackup catalog rebuild --from ./backups"))
def rebuild(
    context: typer.Context,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Make a lost catalog again from the manifests that lie beside the backups."""
    found = settings(
        config, spark_conf=spark_conf or (), destination=from_, catalog=catalog, remote=remote, master=master
    )
    where = destination(found, "--from")
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.rebuild import RebuildRequest, run

    request = RebuildRequest(
        destination=where, catalog=found.catalog, schema_topics=found.schema_topics, remote=found.remote
    )
    with reporter(as_json=json) as report:
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)


@app.command("init", epilog=options.examples("lakebackup catalog init --from ./backups"))
def init(
    context: typer.Context,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Create the tables, or bring those of an older version up to date. A backup does this by itself."""
    found = settings(
        config, spark_conf=spark_conf or (), destination=from_, catalog=catalog, remote=remote, master=master
    )
    where = destination(found, "--from")
    from lakebackup.store import CatalogWriter
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.session import spark_session

    spark = session_of(context, found) or spark_session(remote=found.remote)
    writer = CatalogWriter.open(spark, where, found.catalog)
    writer.migrate()
    with reporter(as_json=json) as report:
        report.result({"catalog": found.catalog or f"{where}/catalog"})
