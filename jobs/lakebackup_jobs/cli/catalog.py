"""`lakebackup catalog …`: the tables themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lakebackup_jobs.cli import manifests, options
from lakebackup_jobs.cli.invocation import destination, session_of, settings, span

app = typer.Typer(help="Look after the catalog's tables.", no_args_is_help=True)
app.command("manifest", epilog=manifests.EXPORT_EXAMPLES)(manifests.manifest)
app.command("import-manifest", epilog=manifests.IMPORT_EXAMPLES)(manifests.import_manifest)


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
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Create the tables, or bring those of an older version up to date. A backup does this by itself."""
    found = settings(config, destination=from_, catalog=catalog)
    where = destination(found, "--from")
    from lakebackup.store import CatalogWriter
    from lakebackup_jobs.progress import reporter

    CatalogWriter.open(None, where, found.catalog).migrate()
    with reporter(as_json=json) as report:
        report.result({"catalog": found.catalog or f"{where}/catalog"})


@app.command(
    "export",
    epilog=options.examples(
        "lakebackup catalog export ./rows --from ./backups",
        "lakebackup catalog export ./rows --format parquet --from ./backups",
    ),
)
def export(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An empty folder, or one to make.")],
    format_: Annotated[
        Literal["jsonl", "parquet"], typer.Option("--format", help="JSON lines or Parquet.")
    ] = "jsonl",
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Write all rows of the catalog into files, for other programs or for `catalog import`."""
    found = settings(config, destination=from_, catalog=catalog)
    where = destination(found, "--from")
    from lakebackup_jobs.catalog_export import ExportRequest, run
    from lakebackup_jobs.progress import reporter

    request = ExportRequest(destination=where, folder=folder, catalog=found.catalog, form=format_)
    with reporter(as_json=json) as report:
        report.result(run(request, reporter=report))


@app.command(
    "import",
    epilog=options.examples(
        "lakebackup catalog import ./rows --from ./backups",
        "lakebackup catalog import --backups snapshots.jsonl --manifests files.jsonl --source-kind restic",
    ),
)
def import_(
    context: typer.Context,
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="The folder of a `catalog export`.")
    ] = None,
    backups: Annotated[
        str | None, typer.Option(metavar="FILE", help="Another program's backups: .jsonl, .parquet.")
    ] = None,
    files: Annotated[
        str | None, typer.Option(metavar="FILE", help="The files that each backup added.")
    ] = None,
    departures: Annotated[
        str | None, typer.Option(metavar="FILE", help="Which backup had a file no more; with --files.")
    ] = None,
    manifests: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Instead: every file of every backup, unchanged ones too."),
    ] = None,
    source_kind: Annotated[
        str, typer.Option(metavar="NAME", help="What made these backups, say restic.")
    ] = "imported",
    trust_root: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URI",
            help="Restore from this destination of the export, too; repeatable. Default: none but --from.",
        ),
    ] = None,
    dry_run: options.DryRun = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    lease_ttl: options.LeaseTtl = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Bring in backups that other catalogs or programs know, to be asked with SQL; all or nothing.

    docs/exchange.md describes the rows. Backups of other programs are neither restored nor pruned here.
    """
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.catalog_import import ImportRequest, run
    from lakebackup_jobs.progress import reporter

    given = {"backups": backups, "files": files, "departures": departures, "manifests": manifests}
    request = ImportRequest(
        destination=where,
        folder=folder,
        given={
            name: path if "://" in path else str(Path(path).absolute())
            for name, path in given.items()
            if path
        },
        source_kind=source_kind,
        trust_roots=tuple(trust_root or ()),
        catalog=found.catalog,
        dry_run=dry_run,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        report.result(run(request, spark=session_of(context, found), reporter=report))


@app.command(
    "optimize",
    epilog=options.examples(
        "lakebackup catalog optimize --from ./backups",
        "lakebackup catalog optimize --retain 30d --dry-run --from ./backups",
    ),
)
def optimize(
    context: typer.Context,
    retain: Annotated[
        str,
        typer.Option(
            metavar="SPAN",
            help="How far back the tables can be asked as they were (sql --as-of); 7d at least.",
        ),
    ] = "7d",
    dry_run: options.DryRun = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Bring the tables' small files together, and delete files of older versions. No row changes."""
    retain_ms = span(retain)
    found = settings(
        config, spark_conf=spark_conf or (), destination=from_, catalog=catalog, remote=remote, master=master
    )
    where = destination(found, "--from")
    from lakebackup_jobs.catalog_optimize import OptimizeRequest, run
    from lakebackup_jobs.progress import reporter

    request = OptimizeRequest(
        destination=where,
        catalog=found.catalog,
        retain_ms=retain_ms or 0,
        dry_run=dry_run,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        report.result(run(request, spark=None if dry_run else session_of(context, found), reporter=report))


@app.command(
    "break-lease",
    epilog=options.examples("lakebackup catalog break-lease source-prod --reason 'its machine is gone'"),
)
def break_lease(
    name: Annotated[str, typer.Argument(metavar="LEASE", help="Its name, as the run that is refused says.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the audit log.")],
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """End the lease of a run that is known to be dead, rather than wait for it to expire.

    A run that lives after all notices at its next renewal, and stops.
    """
    import json as texts
    import time

    found = settings(config, destination=from_, catalog=catalog)
    where = destination(found, "--from")
    from lakebackup import lease
    from lakebackup.model import Audit
    from lakebackup.storage import open_storage
    from lakebackup.store import CatalogWriter
    from lakebackup_jobs.identity import holder
    from lakebackup_jobs.progress import reporter

    broken = lease.break_lease(open_storage(where), name, reason)
    detail = {"reason": reason, "holder": broken.holder, "since_ms": broken.since_ms}
    writer = CatalogWriter.open(None, where, found.catalog)
    at = time.time_ns() // 1000
    writer.append_audit(
        Audit(at=at, actor=holder(), action="break_lease", subject=name, detail=texts.dumps(detail))
    )
    with reporter(as_json=json) as report:
        report.result({"lease": name, "holder": broken.holder, "reason": reason})
