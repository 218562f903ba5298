"""`lakebackup catalog …`: maintain the catalog's tables. One file per verb."""

from __future__ import annotations

from lakebackup_jobs.cli.catalog import break_lease, export, import_, init, manifest, optimize, rebuild
from lakebackup_jobs.cli.verb import group

app = group(
    "catalog",
    "Maintain the catalog's tables.",
    manifest.manifest,
    manifest.import_manifest,
    rebuild.rebuild,
    init.init,
    export.export,
    import_.import_,
    optimize.optimize,
    break_lease.break_lease,
)
