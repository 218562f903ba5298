"""A proof that one file was in a signed backup, checked with a public key and without the repository.

It has the row of the file, the hashes that lead from it to the root of the backup's Merkle tree, and the
signed link that has this root.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import JsonValue, TypeAdapter

from lakebackup.signing.chain import Link, Sha256, parse
from lakebackup.signing.envelope import strict_json, typed_json, verify
from lakebackup.signing.faults import Malformed, WrongProof
from lakebackup.signing.keys import PublicKey, TrustedKeys
from lakebackup.signing.merkle import leaf_hash, proof, proved_root

_HINT = "Get the file from its author again."


@dataclass(frozen=True, slots=True)
class _File:
    format: Literal[1]
    row: str
    index: Annotated[int, Ge(0)]
    hashes: list[Sha256]
    link: dict[str, JsonValue]


_FILE = TypeAdapter(_File)


@dataclass(frozen=True, slots=True)
class Inclusion:
    """What a proof shows: the row of a file, the link of its backup, and the key that signed it."""

    row: dict[str, Any]
    link: Link
    signer: PublicKey


def prove(rows: Sequence[bytes], index: int, link: bytes) -> bytes:
    """Return the content of the file of a proof. `rows`: those of all files of the backup; `link`: the
    content of the object of its link."""
    hashes = proof([leaf_hash(row) for row in rows], index)
    fields = {
        "format": 1,
        "row": rows[index].decode(),
        "index": index,
        "hashes": [sibling.hex() for sibling in hashes],
        "link": json.loads(link),
    }
    return f"{json.dumps(fields, ensure_ascii=False, indent=1)}\n".encode()


def is_proof(content: bytes) -> bool:
    """Whether a file is meant as a proof, and not as a statement."""
    fields = strict_json(content, "The file")
    return isinstance(fields, dict) and "row" in fields


def check(content: bytes, keys: TrustedKeys) -> Inclusion:
    """Check the content of the file of a proof. Raises Malformed, WrongProof, and as `envelope.verify`."""
    file = typed_json(_FILE, content, "The file", "a proof")
    link, envelope = parse(Link, json.dumps(file.link).encode())
    signer = verify(envelope, Link.PAYLOAD_TYPE, keys)
    hashes = [bytes.fromhex(sibling) for sibling in file.hashes]
    if proved_root(file.row.encode(), file.index, link.rows, hashes) != link.rows_root:
        raise WrongProof("The hashes do not lead from this row to the root that was signed.", hint=_HINT)
    row = strict_json(file.row.encode(), "The row")
    if not isinstance(row, dict):
        raise Malformed("The row is not a JSON object.", hint=_HINT)
    return Inclusion(row, link, signer)
