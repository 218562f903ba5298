"""The chains of signatures in a repository: one object a link, in the folder of their source."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from lakebackup.errors import Damaged, NotFound
from lakebackup.rules import layout
from lakebackup.rules.stored_json import NO_JSON
from lakebackup.signing import chain, merkle
from lakebackup.signing.chain import Kind, L, Link
from lakebackup.signing.envelope import Envelope
from lakebackup.signing.faults import SubjectChanged, SubjectMissing, Untrusted
from lakebackup.signing.keys import SigningKey, TrustedKeys
from lakebackup.storage import A_FEW, MANY, AlreadyExists, Storage

_NUMBER = re.compile(r"([0-9]{10})\.json")
# Objects are read ahead by so many threads, this many at a time.
_THREADS = 8
_OBJECTS_AHEAD = 64

T = TypeVar("T")
R = TypeVar("R")


def append(storage: Storage, source: str, kind: Kind, subject: str, path: str, key: SigningKey) -> Link:
    """Sign an object and append the link to the chain of its source; return the link.

    If the newest link is of this object as it is now, it is returned, so a run may repeat this. Raises
    NotFound (there is no such object), Damaged (the newest link cannot be read) and EnvironmentProblem.
    """
    content = storage.get(path, length=MANY)
    sha256 = hashlib.sha256(content).hexdigest()
    tree: tuple[int, str] | None = None

    def next_link(newest: Link | None, _: Envelope | None) -> Link:
        nonlocal tree
        if newest and (newest.path, newest.sha256) == (path, sha256):
            return newest
        tree = tree or merkle.root(file_rows(storage, source, subject) if kind == "backup" else ())
        return Link(
            source=source,
            number=newest.number + 1 if newest else 1,
            previous=newest.digest if newest else None,
            kind=kind,
            subject=subject,
            path=path,
            size=len(content),
            sha256=sha256,
            rows=tree[0],
            rows_root=tree[1],
            signed_at=time.time_ns() // 1000,
        )

    return append_next(Link, storage, source, next_link, key)


def append_next(
    kind: type[L],
    storage: Storage,
    source: str,
    next_link: Callable[[L | None, Envelope | None], L],
    key: SigningKey,
) -> L:
    """Append the link that `next_link` returns for the newest one and its envelope, and return it.

    If it returns the newest one, nothing is appended. It is called again if another run was faster. Raises
    Damaged (the newest link cannot be read) and EnvironmentProblem.
    """
    while True:
        newest, envelope = newest_link(kind, storage, source)
        link = next_link(newest, envelope)
        if link is newest:
            return link
        with suppress(AlreadyExists):  # another run has appended a link
            storage.put(layout.signature_path(source, link.number), chain.sign(link, key), if_absent=True)
            storage.put(layout.newest_signature_path(source), json.dumps({"number": link.number}).encode())
            return link


def newest_link(kind: type[L], storage: Storage, source: str) -> tuple[L, Envelope] | tuple[None, None]:
    """The newest link of a chain, whoever signed it, and its envelope; None if it has none. Raises Damaged.

    The hint saves listing a long chain. A wrong one costs the listing, and changes nothing.
    """
    number = _hint(storage, source)
    if number and not storage.exists(layout.signature_path(source, number)):
        number = 0
    start_after = layout.signature_path(source, number) if number else ""
    for number in _numbers(storage, source, start_after=start_after):  # noqa: B007 - the last one is wanted
        pass
    if not number:
        return None, None
    path = layout.signature_path(source, number)
    try:
        return chain.parse(kind, storage.get(path, length=MANY))
    except Damaged as fault:
        raise type(fault)(
            f"{path}: {fault.message}", hint="`lakebackup verify --signatures` checks the chain."
        ) from None


def links(storage: Storage, source: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each link of a source, in the order of the numbers."""

    def read(number: int) -> tuple[int, bytes]:
        return number, storage.get(layout.signature_path(source, number), length=MANY)

    return read_ahead(read, _numbers(storage, source))


def read_ahead(read: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what `read` returns for each item, in order. Threads read a few items ahead."""
    remaining = iter(items)
    with ThreadPoolExecutor(_THREADS) as pool:
        while chunk := list(islice(remaining, _OBJECTS_AHEAD)):
            yield from pool.map(read, chunk)


def file_rows(storage: Storage, source: str, backup_id: str) -> Iterator[bytes]:
    """Yield the rows of the files of a backup as they are stored beside its manifest, in their order."""
    for part in storage.list(layout.parts_folder(source, backup_id)):
        yield from filter(None, storage.get(part.path, length=MANY).split(b"\n"))


def signed_objects(
    storage: Storage, source: str, keys: TrustedKeys
) -> tuple[dict[str, Link], Untrusted | None]:
    """The newest link of each object of a source that a trusted key signed, by the object's path, and the
    first fault of the chain, or None. Links from the fault on do not count."""
    objects: dict[str, Link] = {}
    try:
        for signed in chain.check(Link, source, links(storage, source), keys):
            objects[signed.link.path] = signed.link
    except Untrusted as fault:
        return objects, fault
    return objects, None


def require_subject(storage: Storage, link: Link) -> bytes:
    """Return the object that a link signs. Raises SubjectMissing and SubjectChanged."""
    label = f"{link.source}, link {link.number}"
    try:
        content = storage.get(link.path, length=MANY)
    except NotFound:
        raise SubjectMissing(
            f"{label}: {link.path} of {link.kind} {link.subject} was signed, and is not there.",
            hint="Restore it from another copy of the repository.",
        ) from None
    if hashlib.sha256(content).hexdigest() != link.sha256:
        raise SubjectChanged(
            f"{label}: {link.path} of {link.kind} {link.subject} is not the object that was signed.",
            hint="Restore it from another copy of the repository.",
        )
    return content


def require_rows(link: Link, rows: Iterable[bytes]) -> None:
    """Read the rows of the files of a backup. Raises SubjectChanged if they are not those of its link."""
    if merkle.root(rows) != (link.rows, link.rows_root):
        raise SubjectChanged(
            f"{link.source}, link {link.number}: the rows beside {link.path} are not those that were signed.",
            hint="Restore them from another copy of the repository.",
        )


def _numbers(storage: Storage, source: str, *, start_after: str = "") -> Iterator[int]:
    """Yield the numbers of links, ascending; other objects in their folder are not links."""
    folder = layout.signatures_folder(source)
    for entry in storage.list(folder, start_after=start_after):
        if match := _NUMBER.fullmatch(entry.path.removeprefix(folder)):
            yield int(match[1])


def _hint(storage: Storage, source: str) -> int:
    try:
        hint: Any = json.loads(storage.get(layout.newest_signature_path(source), length=A_FEW))
        number = hint["number"]
    except (NotFound, KeyError, TypeError, *NO_JSON):
        return 0
    return number if type(number) is int and number > 0 else 0
