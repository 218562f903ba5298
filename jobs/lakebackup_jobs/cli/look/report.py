"""`lakebackup report`: what is protected, until when, and what is missing."""

from __future__ import annotations

import time
from pathlib import Path

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.output.results import report as results
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.query.report.page import page
from lakebackup_jobs.query.report.values import facts
from lakebackup_jobs.query.whole_file import write_whole
from lakebackup_jobs.runtime.terminal_text import visible


@verb(options.REPO, options.AS_OF)
def report(
    call: Call,
    html: Path | None = option("--html FILE", "Write the report as one self-contained HTML page."),
    internal: bool = switch(
        "--internal",
        "Count internal topics (__…) and topics of schema registries too.",
    ),
) -> None:
    """Show until when each source can be restored, what is wrong and how to fix it, and how the backups grow.

    Examples:
        lakebackup report --repo ./backups
        lakebackup report --html report.html --repo ./backups
        lakebackup report --json | jq .findings
    """
    now_ms = call.as_of // 1_000 if call.as_of is not None else time.time_ns() // 1_000_000
    report_values = facts(call.reader(), now_ms, internal=internal)
    if html:
        write_whole(page(report_values), html, "The report")
    if call.json:
        call.show(report_values)
    elif html:
        call.write_lines([f"Wrote {visible(str(html))}.\n", *results.findings(report_values)])
    else:
        call.write_lines(results.lines(report_values, call.screen))
