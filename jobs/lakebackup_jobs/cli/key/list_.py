"""`lakebackup key list`: the keys in files and folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakebackup.config import EncryptionOptions, Settings
from lakebackup.encryption.recipients import Identities, recipient
from lakebackup.errors import LakebackupError, UsageProblem
from lakebackup.signing.keys import KeyFile, describe, short_id
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.identities import has_passphrase, is_identity_file
from lakebackup_jobs.runtime.recipients_file import RecipientsFile

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
    """List the private and public keys in files and folders, or those of the settings and the recipients.

    `in_use`: the settings name the key ([signing], [encryption]). `problem`: why the key cannot be used. A
    private key with a passphrase has the id of the public key beside it; the id of an identity is its first
    recipient. A recipient without a file is in the settings themselves. A table has the first digits of
    ids of keys; --wide, --csv and --json have them in full.

    Examples:
        lakebackup key list
        lakebackup key list /etc/lakebackup --json
    """
    settings = call.settings
    in_use = [Path(file).absolute() for file in _files_in_use(settings)]
    recipients = [] if paths else list(_recipients(settings.encryption))
    if not (paths or in_use or recipients):
        raise UsageProblem(
            "No key is in use, and none is named.",
            hint="Name a file, or set key_file under [signing] or identity_file under [encryption].",
        )
    key_files = list(_described(paths or sorted({file.parent for file in in_use})))
    rows = [
        {
            "key_id": short_id(key.key_id) if key.key_id and call.row_mode == "table" else key.key_id,
            "kind": key.kind,
            "purpose": None if key.problem else "encryption" if is_identity_file(key.path) else "signing",
            "file": str(key.path),
            "passphrase": key.has_passphrase,
            "in_use": key.path.absolute() in in_use,
            "problem": key.problem,
        }
        for key in key_files
    ]
    call.write(pa.Table.from_pylist([*rows, *recipients], _SCHEMA).to_reader())


def _files_in_use(settings: Settings) -> list[str]:
    files = settings.signing.key_file, settings.encryption.identity_file
    return [file for file in files if file is not None]


def _recipients(options: EncryptionOptions) -> Iterator[dict[str, Any]]:
    """Yield a row for each recipient of the settings, and for each problem with one."""
    row = {"kind": "recipient", "purpose": "encryption", "file": None, "passphrase": False, "in_use": True}
    texts: list[tuple[str, str | None]] = [(text, None) for text in options.recipients]
    if options.recipients_file is not None:
        path = Path(options.recipients_file)
        try:
            texts += [(text, str(path)) for text, _ in RecipientsFile.read(path).located_texts()]
        except LakebackupError as error:
            yield {**row, "file": str(path), "problem": error.message}
    for text, file in texts:
        try:
            yield {**row, "key_id": recipient(text).name, "file": file}
        except LakebackupError as error:
            yield {**row, "file": file, "problem": error.message}


def _identity(path: Path) -> KeyFile:
    """Describe a file of identities. One with a passphrase is not opened."""
    if has_passphrase(path):
        return KeyFile(path, "private", None, True)
    try:
        return KeyFile(path, "private", next(iter(Identities.load(path).names), None), False)
    except LakebackupError as error:
        return KeyFile(path, "private", None, False, error.message)


def _described(paths: Sequence[Path]) -> Iterator[KeyFile]:
    """Yield the keys that the paths name, and those in the folders among them. Raises UsageProblem."""
    for path in paths:
        files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
        for file in files:
            key_file = _identity(file) if is_identity_file(file) else describe(file)
            if key_file is not None:
                yield key_file
            elif file is path:
                raise UsageProblem(
                    f"{path} is not a key in PEM form.",
                    hint="`lakebackup key create FILE` makes a key.",
                )
