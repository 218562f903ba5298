"""Chains of signatures, and how to check them: one of each source, and one of the audit log.

The chain of a source has a signed link for each backup and each deletion. A link names an object by path,
size and SHA-256: the manifest of a backup, or the record of a deletion. Of a backup it also has the root of
the Merkle tree of the rows of all files. These have the SHA-256 of each file, so the signature covers all of
the backup. Each link also has the SHA-256 of the link before it, so nobody can insert or exchange a link
unnoticed, or remove one, except the newest. A `Checkpoint`, written elsewhere, shows that the newest ones
were removed.

A link of the audit log has the entries themselves, so an entry and its signature are written at once.

Each link is the payload of an envelope (see `envelope`), in an object of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

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

_CHECKPOINT_FORMAT = 1
_HINT = "Compare the repository with another copy, and find out who could write to it."

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Kind = Literal["backup", "deletion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """What every link of a chain has.

    `source`: whose chain it is. `number`: 1 for its first link. `previous`: the digest of the link before it;
    None for the first.
    """

    PAYLOAD_TYPE: ClassVar[str]

    source: str
    number: Annotated[int, Ge(1)]
    previous: Sha256 | None

    @property
    def payload(self) -> bytes:
        """The bytes that are signed."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The SHA-256 of the payload, which the next link has."""
        return hashlib.sha256(self.payload).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(ChainLink):
    """A link of the chain of a source.

    `subject`: the id of the backup or of the deletion. `path`, `size` in bytes, `sha256`: the object that is
    signed. `rows`, `rows_root`: the number of the backup's files, and the root of the Merkle tree of their
    rows as they are stored; of a deletion, those of no rows. `signed_at`: microseconds since 1970 UTC, by the
    signer's clock.
    """

    PAYLOAD_TYPE: ClassVar[str] = "application/vnd.lakebackup.link+json"

    kind: Kind
    subject: str
    path: str
    size: Annotated[int, Ge(0)]
    sha256: Sha256
    rows: Annotated[int, Ge(0)]
    rows_root: Sha256
    signed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLink(ChainLink):
    """A link of the chain of the audit log: entries that one action has left.

    `name`: that of the entries; if an action is repeated, the newest link of a name counts. `entries`: rows
    of the table `audit`. `signed_at`: microseconds since 1970 UTC, by the signer's clock.
    """

    PAYLOAD_TYPE: ClassVar[str] = "application/vnd.lakebackup.audit+json"

    name: str
    entries: tuple[dict[str, Any], ...]
    signed_at: int


L = TypeVar("L", bound=ChainLink)


_ADAPTERS: Mapping[type[ChainLink], TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (Link, AuditLink)
}


@dataclass(frozen=True, slots=True)
class SignedLink(Generic[L]):
    """A link of a chain, and the key that signed it."""

    link: L
    signer: PublicKey


def sign(link: ChainLink, key: SigningKey) -> bytes:
    """Return the content of the object of a link."""
    return seal(link.PAYLOAD_TYPE, link.payload, key).to_bytes()


def parse(kind: type[L], content: bytes) -> tuple[L, Envelope]:
    """Parse the content of the object of a link, whoever signed it. Raises Malformed."""
    envelope = read(content)
    link: L = typed_json(_ADAPTERS[kind], envelope.payload, "The payload", "a link", hint=_HINT)
    if link.payload != envelope.payload:
        raise Malformed("The payload is not as a link is written.", hint=_HINT)
    return link, envelope


def check(
    kind: type[L], source: str, objects: Iterable[tuple[int, bytes]], keys: TrustedKeys
) -> Iterator[SignedLink[L]]:
    """Yield the links of a chain, and raise its first fault.

    `source`: whose chain it is. `objects`: the number in each object's name, and its content, in the order of
    the numbers. A link of a retired key counts if one of an active key follows: its signer vouches for what
    was there before. Raises Untrusted, of the kind that says what is wrong, with the number of the link.
    """
    last: SignedLink[L] | None = None
    for number, content in objects:
        expected = last.link.number + 1 if last else 1
        if number != expected:
            raise MissingLink(
                f"{source}: link {expected} is missing, and there is a link {number}.", hint=_HINT
            )
        try:
            last = _checked(kind, source, number, content, keys, last)
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
    kind: type[L],
    source: str,
    number: int,
    content: bytes,
    keys: TrustedKeys,
    last: SignedLink[L] | None,
) -> SignedLink[L]:
    link, envelope = parse(kind, content)
    signer = verify(envelope, kind.PAYLOAD_TYPE, TrustedKeys({**keys.retired, **keys.active}, {}))
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
