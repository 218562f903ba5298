"""`lakebackup evidence prove`: write a proof that one file was in a signed backup."""

from __future__ import annotations

import json
from pathlib import Path

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.requests import Request
from lakebackup.rules import layout
from lakebackup.signing import chain, inclusion
from lakebackup.storage import Storage
from lakebackup.store import signatures
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.output.new_file import write_new_file
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO)
def prove(
    call: Call,
    path: str = argument("PATH", "The path of a stored file, as in the view `files`.", ...),
    file: Path = argument("FILE", "The new file to write.", ...),
) -> None:
    """Prove that a file was in a signed backup, to whoever has the public key and not the repository.

    FILE has the row of the file (path, size, SHA-256, times), a few hashes and the signed link of its backup.
    `evidence check` checks it. Exit code 3: the catalog has no such file, or its backup is not signed.

    Examples:
        lakebackup evidence prove prod/5e41d768/topics/orders/partition=0/orders+0-0000000000.data proof.json
        lakebackup evidence check proof.json --public-key host.key.pub
    """
    reader = CatalogReader.require(*call.repository_and_catalog)
    row = reader.first_row("signed_file", path=path)
    if row is None:
        raise NotFound(
            f"The catalog has no file {path!r}.", hint="`lakebackup files BACKUP` lists the paths of files."
        )
    source, backup_id = row["source"], row["backup_id"]
    link = _link(reader.home, source, backup_id)
    rows = list(signatures.file_rows(reader.home, source, backup_id))
    paths = (json.loads(line)["path"] for line in rows)
    index = next((number for number, stored_path in enumerate(paths) if stored_path == path), None)
    if index is None:
        raise NotFound(
            f"The rows beside the manifest of backup {backup_id} do not have {path!r}.",
            hint="`lakebackup verify --signatures` says what is wrong.",
        )
    if file.exists():
        raise UsageProblem(f"{file} exists.", hint="Name a new file.")
    write_new_file(call.request(Request), file, iter([inclusion.prove(rows, index, link).decode()]))
    call.show(
        {"file": str(file), "source": source, "backup_id": backup_id, "path": path},
        [f"{file} proves that {path} was in backup {backup_id} of {source}, to whoever has the public key."],
    )


def _link(storage: Storage, source: str, backup_id: str) -> bytes:
    """The content of the object of the newest link of a backup. Raises NotFound."""
    manifest_path, newest = layout.manifest_path(source, backup_id), None
    for _, content in signatures.links(storage, source):
        if chain.parse(chain.Link, content)[0].path == manifest_path:
            newest = content
    if newest is None:
        raise NotFound(
            f"Backup {backup_id} of {source} is not signed.",
            hint="Backups are signed where key_file is set under [signing] of lakebackup.toml.",
        )
    return newest
