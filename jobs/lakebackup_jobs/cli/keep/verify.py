"""`lakebackup verify`: check stored files against the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from lakebackup_jobs.cli.evidence.record import recorded_evidence
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, switch
from lakebackup_jobs.cli.flags.values import one_of
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.verify import VerifyRequest, require_whole, run

Mode = Literal["stat", "hash", "decode", "restore"]


@verb(options.REPO, options.BANDWIDTH, options.ANY_RUNNER)
def verify(
    call: Call,
    backup_ids: list[str] | None = argument(
        "ID",
        "Backups' ids, beginnings of ids, or latest.",
        show_default="all",
        autocompletion=completion.backups,
    ),
    stat: bool = switch("--stat", "Check only existence and size, which is quick."),
    decode: bool = switch("--decode", "Also decode and count every record."),
    restore: bool = switch("--restore", "Also restore into a temporary folder and read it back."),
    evidence: Path | None = options.EVIDENCE,
) -> None:
    """Check stored files against the catalog, and the reverse: existence, size and SHA-256.

    Results are rows of the views `checks` and `storage_objects`. Exit code 7: a backup is damaged or
    incomplete, or another program has repeated rows of the catalog. Exit code 4: a trial restore failed for
    another reason, such as a full disk.

    Examples:
        lakebackup verify --repo ./backups
        lakebackup verify 20261121T1405 --decode
        lakebackup verify --restore --evidence verify-2026-11-21.json
    """
    mode = cast("Mode", one_of({"stat": stat, "decode": decode, "restore": restore}, otherwise="hash"))

    request = call.request(VerifyRequest, mode=mode)
    with recorded_evidence(call, "verify", request, evidence) as observations:
        require_whole(call.run(run, request, observations=observations))
