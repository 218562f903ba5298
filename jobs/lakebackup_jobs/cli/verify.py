"""`lakebackup verify`: are the backups what the catalog says?"""

from __future__ import annotations

from typing import Annotated, Literal, cast

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.options import argument, option
from lakebackup_jobs.cli.values import one_of
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup verify --from ./backups",
    "lakebackup verify 20261121T1405 --decode",
    "lakebackup verify --restore --json",
)

Mode = Literal["stat", "hash", "decode", "restore"]


@verb(options.FROM, options.SPARK_JOB)
def verify(
    call: Call,
    backup_ids: Annotated[
        list[str] | None, argument("ID", "Backups, or how their ids begin.", default="all")
    ] = None,
    stat: Annotated[bool, option("--stat", "Only existence and size: quick.")] = False,
    decode: Annotated[bool, option("--decode", "Also decode and count every record.")] = False,
    restore: Annotated[
        bool, option("--restore", "Also restore into a folder, read it back and take it away.")
    ] = False,
) -> None:
    """Check stored files against the catalog, both ways: existence, size and sha256.

    Findings are kept as rows (checks, storage_objects). Exit code 7: something is wrong.
    """
    mode = cast("Mode", one_of({"stat": stat, "decode": decode, "restore": restore}, otherwise="hash"))
    from lakebackup_jobs.upkeep.verify import VerifyRequest, require_whole, run

    require_whole(call.run(run, call.request(VerifyRequest, mode=mode)))
