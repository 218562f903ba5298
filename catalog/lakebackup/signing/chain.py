"""The chain of signatures of a source: a signed link for each backup and each deletion, and how to check it.

A link names an object by path, size and SHA-256: the manifest of a backup, or the record of a deletion. Of a
backup it also has the root of the Merkle tree of the rows of all files. These have the SHA-256 of each file,
so the signature covers all of a backup. Each link also has the SHA-256 of the link before it, so nobody can
insert or exchange a link unnoticed, or remove one, except the newest. A `Checkpoint`, written elsewhere,
shows that the newest ones were removed.

Each link is the payload of an envelope (see `envelope`), in an object of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import StringConstraints, TypeAdapter, ValidationError

from lakebackup.signing.envelope import Envelope, read, seal, strict_json, typed_json, verify
from lakebackup.signing.faults import (
    BehindCheckpoint,
    BrokenChain,
    Malformed,
    MissingLink,
    OtherHistory,
    RetiredKey,
    Untrusted,
    WrongOrder,
)
from lakebackup.signing.keys import PublicKey, SigningKey, TrustedKeys, short_id

PAYLOAD_TYPE = "application/vnd.lakebackup.link+json"
_CHECKPOINT_FORMAT = 1
_HINT = "Compare the repository with another copy, and find out who could write to it."

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Kind = Literal["backup", "deletion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link of a chain.

    `number`: 1 for the first link of a source. `previous`: the digest of the link before it; None for the
    first. `subject`: the id of the backup or of the deletion. `path`, `size` in bytes, `sha256`: the object
    that is signed. `rows`, `rows_root`: the number of the backup's files, and the root of the Merkle tree of
    their rows as they are stored; of a deletion, those of no rows. `signed_at`: microseconds since 1970 UTC,
    by the signer's clock.
    """

    source: str
    number: Annotated[int, Ge(1)]
    previous: Sha256 | None
    kind: Kind
    subject: str
    path: str
    size: Annotated[int, Ge(0)]
    sha256: Sha256
    rows: Annotated[int, Ge(0)]
    rows_root: Sha256
    signed_at: int

    @property
    def payload(self) -> bytes:
        """The bytes that are signed."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The SHA-256 of the payload, which the next link has."""
        return hashlib.sha256(self.payload).hexdigest()


_LINK = TypeAdapter(Link)


@dataclass(frozen=True, slots=True)
class SignedLink:
    """A link of a chain, and the key that signed it."""

    link: Link
    signer: PublicKey


def sign(link: Link, key: SigningKey) -> bytes:
    """Return the content of the object of a link."""
    return seal(PAYLOAD_TYPE, link.payload, key).to_bytes()


def parse(content: bytes) -> tuple[Link, Envelope]:
    """Parse the content of the object of a link, whoever signed it. Raises Malformed."""
    envelope = read(content)
    link = typed_json(_LINK, envelope.payload, "The payload", "a link", hint=_HINT)
    if link.payload != envelope.payload:
        raise Malformed("The payload is not as a link is written.", hint=_HINT)
    return link, envelope


def check(source: str, objects: Iterable[tuple[int, bytes]], keys: TrustedKeys) -> Iterator[SignedLink]:
    """Yield the links of a source, and raise the first fault of its chain.

    `objects`: the number in each object's name, and its content, in the order of the numbers. A link of a
    retired key counts if one of an active key follows: its signer vouches for what was there before. Raises
    Untrusted, of the kind that says what is wrong, with the number of the link.
    """
    last: SignedLink | None = None
    for number, content in objects:
        expected = last.link.number + 1 if last else 1
        if number != expected:
            raise MissingLink(
                f"{source}: link {expected} is missing, and there is a link {number}.", hint=_HINT
            )
        try:
            last = _checked(source, number, content, keys, last)
        except Untrusted as fault:
            raise type(fault)(f"{source}, link {number}: {fault.message}", hint=fault.hint) from None
        yield last
    if last and last.signer.key_id in keys.retired:
        raise RetiredKey(
            f"{source}, link {last.link.number}: the newest link is signed with the key "
            f"{short_id(last.signer.key_id)}, which is retired.",
            hint="Make a backup with a key that is trusted: it vouches for the links before it.",
        )


def _checked(
    source: str, number: int, content: bytes, keys: TrustedKeys, last: SignedLink | None
) -> SignedLink:
    link, envelope = parse(content)
    signer = verify(envelope, PAYLOAD_TYPE, TrustedKeys({**keys.retired, **keys.active}, {}))
    if (link.source, link.number) != (source, number):
        raise WrongOrder(f"It is link {link.number} of {link.source}.", hint=_HINT)
    if link.previous != (last.link.digest if last else None):
        raise BrokenChain("It does not follow the link before it: one of the two was exchanged.", hint=_HINT)
    return SignedLink(link, signer)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest link of each source at some time: its number and its digest.

    Whoever writes to a repository can remove its newest links, or put an older copy of it in its place. A
    checkpoint that is elsewhere shows both.
    """

    links: Mapping[str, tuple[int, str]]

    def to_bytes(self) -> bytes:
        """Return the content of the checkpoint's file."""
        links = {
            source: {"number": n, "digest": digest} for source, (n, digest) in sorted(self.links.items())
        }
        return f"{json.dumps({'format': _CHECKPOINT_FORMAT, 'links': links}, indent=1)}\n".encode()

    @classmethod
    def parse(cls, content: bytes) -> Checkpoint:
        """Parse the content of a checkpoint's file. Raises Malformed."""
        strict_json(content, "The checkpoint")
        try:
            file = _CHECKPOINT.validate_json(content, strict=True, extra="forbid")
        except ValidationError:
            raise Malformed(
                "The file is not a checkpoint of this version.",
                hint="Give a file that `verify --signatures --save-checkpoint` wrote.",
            ) from None
        return cls({source: (link.number, link.digest) for source, link in file.links.items()})

    def compare(self, source: str, digests: Mapping[int, str]) -> None:
        """Compare the digests of the links of a source, by their numbers, with this checkpoint.

        Raises BehindCheckpoint (newest links are gone) and OtherHistory (the link has another digest).
        """
        if source not in self.links:
            return
        number, digest = self.links[source]
        if number not in digests:
            raise BehindCheckpoint(
                f"{source}: the chain ends with link {max(digests, default=0)}, and the checkpoint has link "
                f"{number}. Somebody removed the newest links.",
                hint=_HINT,
            )
        if digests[number] != digest:
            raise OtherHistory(
                f"{source}, link {number}: it is not the one of the checkpoint. The chain was replaced.",
                hint=_HINT,
            )


@dataclass(frozen=True, slots=True)
class _CheckpointLink:
    number: Annotated[int, Ge(1)]
    digest: Sha256


@dataclass(frozen=True, slots=True)
class _CheckpointFile:
    format: Literal[1]
    links: dict[str, _CheckpointLink]


_CHECKPOINT = TypeAdapter(_CheckpointFile)
