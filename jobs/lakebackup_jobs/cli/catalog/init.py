"""`lakebackup catalog init`."""

from __future__ import annotations

from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO)
def init(call: Call) -> None:
    """Create the tables, or bring those of an older version up to date. A backup does this by itself.

    Examples:
        lakebackup catalog init --repo ./backups
    """
    repo, catalog = call.repository, call.settings.catalog

    CatalogWriter(None, *call.repository_and_catalog).migrate()
    call.report.result({"catalog": catalog or f"{repo}/catalog"})
