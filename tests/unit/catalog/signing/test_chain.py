"""Chains of signatures: whatever is changed, taken out, exchanged or replayed is a fault of its own kind.

Layer: pure. It is worth its second: nothing but these rules shows a forgery to `verify --signatures`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.signing.chain import Checkpoint, Link, check, parse, sign
from lakebackup.signing.envelope import seal
from lakebackup.signing.faults import (
    BehindCheckpoint,
    BrokenChain,
    Malformed,
    MissingLink,
    NotSigned,
    OtherHistory,
    PayloadChanged,
    RetiredKey,
    UnknownKey,
    Untrusted,
    WrongOrder,
    WrongSignature,
    WrongType,
)
from lakebackup.signing.keys import SigningKey, TrustedKeys

KEY, NEW_KEY, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys.of([KEY.public])
Objects = list[tuple[int, bytes]]


def links(count: int, source: str = "prod") -> list[Link]:
    """A chain of so many links."""
    chain: list[Link] = []
    for number in range(1, count + 1):
        previous = chain[-1].digest if chain else None
        chain.append(
            Link(
                source=source, number=number, previous=previous, kind="backup", subject=f"b{number}",
                path=f"{source}/backups/b{number}/manifest.json", size=number, sha256=f"{number:064x}",
                rows=number, rows_root=f"{number:064x}", signed_at=number,
            )
        )  # fmt: skip
    return chain


def objects(chain: Sequence[Link], keys: Sequence[SigningKey] = (KEY,)) -> Objects:
    """The objects of links, which the keys sign in turn."""
    return [(link.number, sign(link, keys[i % len(keys)])) for i, link in enumerate(chain)]


def followed(chain_objects: Objects, keys: TrustedKeys = TRUSTED, source: str = "prod") -> list[int]:
    return [signed.link.number for signed in check(Link, source, chain_objects, keys)]


@given(count=st.integers(0, 12))
def test_a_chain_is_followed_to_its_end(count: int) -> None:
    assert followed(objects(links(count))) == list(range(1, count + 1))


LINKS = st.builds(
    Link,
    source=st.text(),
    number=st.integers(1, 1 << 40),
    previous=st.none() | st.just("f" * 64),
    kind=st.sampled_from(["backup", "deletion"]),
    subject=st.text(),
    path=st.text(),
    size=st.integers(0, 1 << 60),
    sha256=st.just("0" * 64),
    rows=st.integers(0, 1 << 60),
    rows_root=st.just("0" * 64),
    signed_at=st.integers(0, 1 << 60),
)


@given(link=LINKS)
def test_a_link_is_read_as_it_was_signed(link: Link) -> None:
    assert parse(Link, sign(link, KEY))[0] == link


@given(data=st.data())
def test_every_flipped_bit_is_a_fault(data: st.DataObject) -> None:
    chain_objects = objects(links(3))
    index = data.draw(st.integers(0, 2))
    content = bytearray(chain_objects[index][1])
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    chain_objects[index] = (index + 1, bytes(content))
    with pytest.raises(Untrusted, match=f"prod, link {index + 1}: "):
        followed(chain_objects)


def with_payload(chain_objects: Objects, index: int, key: SigningKey = KEY, **fields: Any) -> Objects:
    """The objects, with other fields in one payload, signed by a key."""
    payload = json.loads(parse(Link, chain_objects[index][1])[1].payload) | fields
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
    return [
        *chain_objects[:index],
        (chain_objects[index][0], seal(Link.PAYLOAD_TYPE, text, key).to_bytes()),
        *chain_objects[index + 1 :],
    ]


def resigned(chain_objects: Objects, key: SigningKey | None) -> Objects:
    """The objects, with a last link that another key signs, or none."""
    payload = parse(Link, chain_objects[-1][1])[1].payload
    return [*chain_objects[:-1], (chain_objects[-1][0], seal(Link.PAYLOAD_TYPE, payload, key).to_bytes())]


def with_signature_of_another(chain_objects: Objects) -> Objects:
    """The last object has the signature of the one before it."""
    first, last = json.loads(chain_objects[-2][1]), json.loads(chain_objects[-1][1])
    return [
        *chain_objects[:-1],
        (chain_objects[-1][0], json.dumps({**last, "signatures": first["signatures"]}).encode()),
    ]


def with_changed_payload(chain_objects: Objects) -> Objects:
    fields = json.loads(chain_objects[-1][1])
    previous = json.loads(chain_objects[-2][1])
    return [
        *chain_objects[:-1],
        (chain_objects[-1][0], json.dumps({**fields, "payload": previous["payload"]}).encode()),
    ]


def of_other_type(chain_objects: Objects) -> Objects:
    payload = parse(Link, chain_objects[-1][1])[1].payload
    return [
        *chain_objects[:-1],
        (chain_objects[-1][0], seal("application/vnd.in-toto+json", payload, KEY).to_bytes()),
    ]


TAMPERINGS: dict[str, tuple[Callable[[Objects], Objects], type[Untrusted]]] = {
    "a link is taken out": (lambda o: [*o[:2], *o[3:]], MissingLink),
    "the first link is taken out": (lambda o: o[1:], MissingLink),
    "later links are renumbered over a gap": (
        lambda o: [*o[:2], *((n - 1, content) for n, content in o[3:])],
        WrongOrder,
    ),
    "two links are exchanged": (lambda o: [o[0], (2, o[2][1]), (3, o[1][1]), *o[3:]], WrongOrder),
    "an earlier link is in place of the newest": (lambda o: [*o[:-1], (len(o), o[1][1])], WrongOrder),
    "a link of another history has the same number": (
        lambda o: [*o[:2], (3, objects([replace(links(3)[2], previous="0" * 64)])[0][1]), *o[3:]],
        BrokenChain,
    ),
    "a link is signed again for another": (lambda o: with_payload(o, 1, subject="b9"), BrokenChain),
    "the first link claims to follow one": (lambda o: with_payload(o, 0, previous="1" * 64), BrokenChain),
    "a link is of another source": (lambda o: [*o[:-1], objects(links(len(o), "dev"))[-1]], WrongOrder),
    "a stranger signs the newest": (lambda o: resigned(o, STRANGER), UnknownKey),
    "a stranger writes a link more": (lambda o: [*o, (5, sign(links(5)[4], STRANGER))], UnknownKey),
    "the newest has no signature": (lambda o: resigned(o, None), NotSigned),
    "the newest has the signature of another": (with_signature_of_another, WrongSignature),
    "the newest has the payload of another": (with_changed_payload, PayloadChanged),
    "the newest is a statement of another type": (of_other_type, WrongType),
    "the newest is empty": (lambda o: [*o[:-1], (len(o), b"")], Malformed),
    "the newest is cut off": (lambda o: [*o[:-1], (len(o), o[-1][1][:-20])], Malformed),
    "the newest lacks a field": (lambda o: with_payload(o, 3, signed_at=None), Malformed),
    "the newest has another field": (lambda o: with_payload(o, 3, more=1), Malformed),
    "a number is a text": (lambda o: with_payload(o, 3, number="4"), Malformed),
    "a kind is unknown": (lambda o: with_payload(o, 3, kind="restore"), Malformed),
}  # fmt: skip


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_each_tampering_is_named(tampering: str) -> None:
    change, fault = TAMPERINGS[tampering]
    with pytest.raises(Untrusted) as raised:
        followed(change(objects(links(4))))
    assert type(raised.value) is fault


def test_a_payload_in_another_spelling_is_malformed() -> None:
    payload = json.dumps(json.loads(links(1)[0].payload), indent=1).encode()
    with pytest.raises(Malformed, match="not as a link is written"):
        followed([(1, seal(Link.PAYLOAD_TYPE, payload, KEY).to_bytes())])


def test_links_of_a_retired_key_count_once_an_active_key_has_signed_after_them() -> None:
    keys = TrustedKeys.of([NEW_KEY.public], [KEY.public])
    chain = links(3)
    signed = objects(chain[:2]) + objects(chain[2:], [NEW_KEY])
    assert followed(signed, keys) == [1, 2, 3]
    with pytest.raises(RetiredKey, match="prod, link 2: the newest link"):
        followed(signed[:2], keys)


def digests(chain: Sequence[Link]) -> dict[int, str]:
    return {link.number: link.digest for link in chain}


def test_a_checkpoint_shows_that_newest_links_are_gone() -> None:
    chain = links(4)
    checkpoint = Checkpoint.parse(Checkpoint({"prod": (4, chain[3].digest)}).to_bytes())
    checkpoint.compare("prod", digests(links(6)))
    checkpoint.compare("another source", {})
    with pytest.raises(BehindCheckpoint, match="ends with link 3, and the checkpoint has link 4"):
        checkpoint.compare("prod", digests(chain[:3]))
    with pytest.raises(BehindCheckpoint, match="ends with link 0"):
        checkpoint.compare("prod", {})


def test_a_checkpoint_shows_another_history() -> None:
    chain, forged = links(4), links(4)
    forged[3] = replace(forged[3], subject="b9")
    with pytest.raises(OtherHistory, match="prod, link 4"):
        Checkpoint({"prod": (4, chain[3].digest)}).compare("prod", digests(forged))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"format": 2, "links": {}}', b'{"format": 1}', b'{"format": 1, "links": {}, "more": 1}',
     b'{"format": 1, "links": {"prod": {"number": 0, "digest": "' + b"0" * 64 + b'"}}}',
     b'{"format": 1, "links": {"prod": {"number": 1, "digest": "A"}}}'],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(Malformed, match="checkpoint"):
        Checkpoint.parse(content)
