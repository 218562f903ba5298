"""`lakebackup drill`: test a restore, and measure how long it takes."""

from __future__ import annotations

from pathlib import Path

from lakebackup.errors import NotFound, UsageProblem
from lakebackup_jobs.cli.evidence.record import recorded_evidence
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.flags.values import check_folder, instant
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.drill import DrillRequest, require_good, run


@verb(options.REPO, options.DRY_RUN, options.ANY_RUNNER, options.BANDWIDTH)
def drill(
    call: Call,
    sources: list[str] | None = argument(
        "SOURCE", "Sources.", show_default="all", autocompletion=completion.sources
    ),
    seed: int | None = option(
        "--seed N",
        "Seed for choosing restore points at random.",
        show_default="a random one",
        min=0,
        max=2**63 - 1,
    ),
    backup: str | None = option(
        "--backup ID", "Up to the end of this backup.", autocompletion=completion.backups
    ),
    to_ts: int | None = option(
        "--to-time TIME", f"Up to and including this time. {options.TIMES}", parser=instant
    ),
    scratch: str | None = option(
        "--scratch FOLDER",
        "Restore into a temporary folder below this one.",
        show_default="the folder of temporary files",
    ),
    check: Path | None = option(
        "--check FILE", "A SELECT over the relation `restored`. The drill is good when it returns no row."
    ),
    evidence: Path | None = options.EVIDENCE,
) -> None:
    """Test a restore of each source: restore one restore point, compare it with the backup, and delete it.

    The restore point is chosen at random unless --backup or --to-time names one. Topics are compared record
    by record, snapshots and engines file by file, logs row by row. Each drill is a row of the view
    `drills`, with its expected and its real duration; `status` shows the last successful one. Exit code 7:
    the restored data differs from the backup.

    Examples:
        lakebackup drill --repo ./backups
        lakebackup drill orders-cluster --to-time -2d --scratch /mnt/scratch
        lakebackup drill orders-cluster --check no-orphans.sql --json
        lakebackup drill --evidence drill-2026-11-21.json
        lakebackup drill --dry-run
    """
    given_flags = [
        flag
        for flag, value in {"--seed": seed, "--backup": backup, "--to-time": to_ts}.items()
        if value is not None
    ]
    if len(given_flags) > 1:
        raise UsageProblem(f"{' and '.join(given_flags)} exclude each other.", hint="Give one of them.")

    request = call.request(
        DrillRequest,
        sources=tuple(sources or ()),
        backup_id=backup,
        scratch=str(Path(check_folder("--scratch", scratch, "which folder?")).absolute())
        if scratch
        else None,
        check=_text(check),
    )
    with recorded_evidence(call, "drill", request, evidence) as observations:
        require_good(call.run(run, request, spark=not call.dry_run, observations=observations))


def _text(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise NotFound(
            f"--check {file} cannot be read: {reason}.",
            hint="Give a file with one SELECT over the relation `restored`.",
        ) from None
