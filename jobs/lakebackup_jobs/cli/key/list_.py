"""`lakebackup key list`: the keys in files and folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from lakebackup.errors import UsageProblem
from lakebackup.signing.keys import KeyFile, describe, short_id
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.verb import Call, verb

_SCHEMA = pa.schema(
    [
        ("key_id", pa.string()), ("kind", pa.string()), ("purpose", pa.string()), ("file", pa.string()),
        ("passphrase", pa.bool_()), ("in_use", pa.bool_()), ("problem", pa.string()),
    ]
)  # fmt: skip


@verb(options.CSV)
def _list(
    call: Call,
    paths: list[Path] | None = argument(
        "FILE|FOLDER",
        "Files of keys, and folders with such files.",
        show_default="those of the key in use",
    ),
) -> None:
    """List the private and public keys in files and folders.

    `in_use`: the settings name the key ([signing]). `problem`: why the key cannot be used. A private key with
    a passphrase has the id of the public key beside it. A table has the first digits of ids; --wide,
    --csv and --json have them in full.

    Examples:
        lakebackup key list
        lakebackup key list /etc/lakebackup --json
    """
    key_file = call.settings.signing.key_file
    if not paths and key_file is None:
        raise UsageProblem(
            "No key is in use, and none is named.",
            hint="Name a file or a folder, or set key_file under [signing] in lakebackup.toml.",
        )
    key_files = list(_described(paths or [Path(key_file or "").absolute().parent]))
    rows = [
        {
            "key_id": short_id(key.key_id) if key.key_id and call.row_mode == "table" else key.key_id,
            "kind": key.kind,
            "purpose": None if key.problem else "signing",
            "file": str(key.path),
            "passphrase": key.has_passphrase,
            "in_use": key_file is not None and key.path.absolute() == Path(key_file).absolute(),
            "problem": key.problem,
        }
        for key in key_files
    ]
    call.write(pa.Table.from_pylist(rows, _SCHEMA).to_reader())


def _described(paths: Sequence[Path]) -> Iterator[KeyFile]:
    """Yield the keys that the paths name, and those in the folders among them. Raises UsageProblem."""
    for path in paths:
        files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
        for file in files:
            key_file = describe(file)
            if key_file is not None:
                yield key_file
            elif file is path:
                raise UsageProblem(
                    f"{path} is not a key in PEM form.", hint="`lakebackup key create FILE` makes a key."
                )
