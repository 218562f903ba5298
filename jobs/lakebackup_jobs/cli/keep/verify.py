"""`lakebackup verify`: check stored files against the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.signing.chain import Checkpoint
from lakebackup_jobs.cli.evidence.record import recorded_evidence
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import one_of
from lakebackup_jobs.cli.output.new_file import write_new_file
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.signing import trusted_keys
from lakebackup_jobs.upkeep import signatures
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
    check_signatures: bool = switch(
        "--signatures", "Check who signed the backups, and compare the catalog with what was signed."
    ),
    public_key: list[Path] | None = option(
        "--public-key FILE",
        "A public key that you trust; repeatable.",
        show_default="public_keys under [signing]",
    ),
    retired_key: list[Path] | None = option(
        "--retired-key FILE",
        "A public key that you do not trust any more; repeatable.",
        show_default="retired_keys under [signing]",
    ),
    checkpoint: Path | None = option(
        "--checkpoint FILE",
        "Compare with an earlier checkpoint: it shows whether somebody removed the newest backups.",
        show_default=False,
    ),
    save_checkpoint: Path | None = option(
        "--save-checkpoint FILE",
        "Write the newest signatures to this new file. Keep it where the repository is not.",
        show_default=False,
    ),
    evidence: Path | None = options.EVIDENCE,
) -> None:
    """Check stored files against the catalog, and the reverse: existence, size and SHA-256.

    Results are rows of the views `checks` and `storage_objects`. Exit code 7: a backup is damaged or
    incomplete, or another program has repeated rows of the catalog. Exit code 4: a trial restore failed for
    another reason, such as a full disk.

    With --signatures it reads no data file, and needs public keys alone. Exit code 7: a signature is missing
    or wrong, or the repository is not as it was signed. The error names the first fault of a source.

    Examples:
        lakebackup verify --repo ./backups
        lakebackup verify 20261121T1405 --decode
        lakebackup verify --restore --evidence verify-2026-11-21.json
        lakebackup verify --signatures --public-key host.key.pub --save-checkpoint 2026-11-21.json
    """
    modes = {"stat": stat, "decode": decode, "restore": restore, "signatures": check_signatures}
    mode = one_of(modes, otherwise="hash")
    if mode == "signatures":
        if backup_ids or evidence:
            raise UsageProblem(
                "--signatures checks whole chains: it takes no ID and no --evidence.",
                hint="Leave them out.",
            )
        _verify_signatures(call, public_key or (), retired_key or (), checkpoint, save_checkpoint)
        return
    if public_key or retired_key or checkpoint or save_checkpoint:
        raise UsageProblem(
            "--public-key, --retired-key, --checkpoint and --save-checkpoint need --signatures.",
            hint="Add --signatures, or leave them out.",
        )

    request = call.request(VerifyRequest, mode=cast("Mode", mode))
    with recorded_evidence(call, "verify", request, evidence) as observations:
        require_whole(call.run(run, request, observations=observations))


def _verify_signatures(
    call: Call,
    public_keys: Sequence[Path],
    retired_keys: Sequence[Path],
    checkpoint_file: Path | None,
    new_checkpoint: Path | None,
) -> None:
    keys = trusted_keys(call.settings.signing, public_keys, retired_keys)
    if keys is None:
        raise UsageProblem(
            "--signatures needs the public keys that you trust, and none is named.",
            hint="Add --public-key FILE, or set public_keys under [signing] of lakebackup.toml.",
        )
    if new_checkpoint and new_checkpoint.exists():
        raise UsageProblem(f"--save-checkpoint {new_checkpoint}: the file exists.", hint="Name a new file.")
    checkpoint = Checkpoint.parse(_content(checkpoint_file)) if checkpoint_file else None
    request = call.request(signatures.SignaturesRequest, keys=keys, checkpoint=checkpoint)
    result = call.run(signatures.run, request)
    signatures.require_signed(result)
    if new_checkpoint:
        write_new_file(request, new_checkpoint, iter([result["checkpoint"]]))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise NotFound(
            f"--checkpoint {file} cannot be read: {error.strerror}.",
            hint="Name a file that --save-checkpoint wrote.",
        ) from None
