"""`lakebackup catalog ddl`: print the statements that register the catalog in another engine."""

from __future__ import annotations

from pathlib import Path

from lakebackup.errors import UsageProblem
from lakebackup.reference import view_comments
from lakebackup.requests import Request
from lakebackup.sql_engine.registration import DEFAULT_SCHEMA, ForeignEngine, address_in, register
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.output.new_file import write_new_file
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO, waits="reading the catalog")
def ddl(
    call: Call,
    engine: ForeignEngine = option("--for ENGINE", "databricks, spark, trino or duckdb.", ...),
    schema: str = option(
        "--schema NAME", "The schema to create; a catalog may precede it: main.lakebackup.", DEFAULT_SCHEMA
    ),
    address: str | None = option(
        "--at URI", "The catalog's folder as that engine reaches it.", show_default="as here"
    ),
    refresh: bool = switch("--refresh", "Only the statements that bring its computed tables up to date."),
    output_file: Path | None = options.OUTPUT_FILE,
) -> None:
    """Print SQL that registers the catalog's views in Databricks, Spark, Trino or DuckDB.

    The engine then answers by itself: it needs no lakebackup. Its views are those of `lakebackup sql`, with
    their comments, over external tables that are read where they are. It cannot read the records inside the
    backups.

    The statements can run again: do so after an upgrade of lakebackup. On DuckDB all views are up to date.
    Elsewhere, the views that many others read are tables: run what --refresh prints after each backup.

    Examples:
        lakebackup catalog ddl --for databricks --schema main.lakebackup --repo s3://backups/prod
        lakebackup catalog ddl --for spark --repo ./backups --out views.sql
        lakebackup catalog ddl --for spark --repo ./backups --refresh --out refresh.sql
        lakebackup catalog ddl --for duckdb --repo ./backups | duckdb catalog.db
    """
    reader = call.reader()
    address = address or address_in(engine, reader.catalog_uri)
    registration = register(engine, schema, address, reader.stored_columns(), view_comments())
    if refresh:
        registration = registration.only_refresh()
        if not registration.statements:
            raise UsageProblem(
                "--refresh: DuckDB has nothing to refresh.", hint="Its views are up to date by themselves."
            )
    facts = {"for": engine, "schema": schema, "address": address, "untranslated": registration.untranslated}
    if output_file is not None:
        write_new_file(call.request(Request), output_file, registration.script())
        call.show({**facts, "file": str(output_file)})
    elif call.json:
        call.show({**facts, "statements": registration.statements})
    else:
        call.write_lines(registration.script())
