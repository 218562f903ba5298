"""DSSE envelopes (github.com/secure-systems-lab/dsse): a payload, its type, and signatures over both.

A signature covers the exact bytes of the payload, with its type and both lengths (`pae`), so nothing has to
be brought into a canonical form. Our files have one field more than the specification: `payloadSha256`. It
tells a damaged payload from a wrong signature, and it is all that a file without a key has. It proves nothing
about who wrote the file.

A file that is read must be strictly of this form, so that two programs cannot read it differently: no key
twice in an object, no other fields, and base64 as it is written here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lakebackup.signing.faults import (
    Malformed,
    NotSigned,
    PayloadChanged,
    RetiredKey,
    UnknownKey,
    Untrusted,
    WrongSignature,
    WrongType,
)
from lakebackup.signing.keys import PublicKey, SigningKey, TrustedKeys, short_id

T = TypeVar("T")
#: The largest file that is read.
MAX_BYTES = 64 << 20
_FIELDS = frozenset({"payloadType", "payload", "payloadSha256", "signatures"})
_SIGNATURE_FIELDS = frozenset({"keyid", "sig"})
_MAX_SIGNATURES = 16
_HINT = "Get the file from its author again."


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature, and the id of the key that made it."""

    key_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with its type and signatures. `payload_sha256`: what the file says of the payload."""

    payload_type: str
    payload: bytes
    payload_sha256: str
    signatures: tuple[Signature, ...]

    def to_bytes(self) -> bytes:
        """Return the content of the envelope's file."""
        fields = {
            "payloadType": self.payload_type,
            "payload": base64.b64encode(self.payload).decode(),
            "payloadSha256": self.payload_sha256,
            "signatures": [
                {"keyid": signature.key_id, "sig": base64.b64encode(signature.value).decode()}
                for signature in self.signatures
            ],
        }
        return f"{json.dumps(fields, indent=1)}\n".encode()


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding."""
    type_bytes = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(type_bytes), type_bytes, len(payload), payload)


def seal(payload_type: str, payload: bytes, key: SigningKey | None) -> Envelope:
    """Return the envelope of a payload. Without a key it has no signature."""
    signatures = () if key is None else (Signature(key.key_id, key.sign(pae(payload_type, payload))),)
    return Envelope(payload_type, payload, hashlib.sha256(payload).hexdigest(), signatures)


def read(content: bytes) -> Envelope:
    """Read the content of an envelope's file. Raises Malformed."""
    fields = _object(strict_json(content, "The file"), _FIELDS, "The file")
    payload_type, payload_sha256 = fields["payloadType"], fields["payloadSha256"]
    if not isinstance(payload_type, str) or not isinstance(payload_sha256, str):
        raise Malformed("payloadType or payloadSha256 is not a text.", hint=_HINT)
    signatures = fields["signatures"]
    if not isinstance(signatures, list) or len(signatures) > _MAX_SIGNATURES:
        raise Malformed(f"signatures is not a list of up to {_MAX_SIGNATURES}.", hint=_HINT)
    return Envelope(
        payload_type,
        _decoded(fields["payload"], "payload"),
        payload_sha256,
        tuple(_signature(signature) for signature in signatures),
    )


def verify(envelope: Envelope, payload_type: str, keys: TrustedKeys) -> PublicKey:
    """Return the trusted key that signed an envelope with this type.

    Raises the first fault that there is, in this order: WrongType, PayloadChanged, NotSigned, WrongSignature,
    RetiredKey, UnknownKey.
    """
    require_intact(envelope, payload_type)
    if not envelope.signatures:
        raise NotSigned(
            "The file is not signed. It shows integrity only, and not who wrote it.",
            hint="Set key_file under [signing] where statements are written.",
        )
    signer: PublicKey | None = None
    fault: Untrusted | None = None
    message = pae(envelope.payload_type, envelope.payload)
    for signature in envelope.signatures:
        key = keys.active.get(signature.key_id) or keys.retired.get(signature.key_id)
        if key is None:
            fault = fault or UnknownKey(
                f"The file is signed with the key {short_id(signature.key_id)}, which is not a trusted one.",
                hint="Name its public key with --public-key if you trust it.",
            )
        elif not key.matches(signature.value, message):
            raise WrongSignature(
                f"The signature is wrong: the key {short_id(key.key_id)} did not sign this payload.",
                hint=_HINT,
            )
        elif key.key_id in keys.retired:
            fault = RetiredKey(
                f"The file is signed with the key {short_id(key.key_id)}, which is retired.",
                hint="Whoever has a retired key can sign any time into a statement. Trust only copies that "
                "you got before it was retired.",
            )
        else:
            signer = signer or key
    if signer is None:
        raise fault or NotSigned("The file is not signed.", hint=_HINT)
    return signer


def require_intact(envelope: Envelope, payload_type: str) -> None:
    """Raise WrongType or PayloadChanged unless the payload is of this type and has its SHA-256.

    This takes no key, and shows no more than that the file was not damaged by accident.
    """
    if envelope.payload_type != payload_type:
        raise WrongType(
            f"The payload's type is {envelope.payload_type[:100]!r}, not {payload_type}.",
            hint="Give a file that `drill --evidence` or `verify --evidence` wrote.",
        )
    if hashlib.sha256(envelope.payload).hexdigest() != envelope.payload_sha256:
        raise PayloadChanged(
            "The payload was changed: it does not have the SHA-256 that the file states.", hint=_HINT
        )


def strict_json(content: bytes, label: str) -> Any:
    """Parse JSON in which no object has a key twice. Raises Malformed, which begins with `label`."""
    try:
        return json.loads(
            content.decode("utf-8"), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise Malformed(f"{label} is nested too deeply.", hint=_HINT) from None
    except _Repeated as repeated:
        raise Malformed(f"{label} has the key {repeated.args[0]!r} twice in an object.", hint=_HINT) from None
    except ValueError:  # not UTF-8, or not JSON
        raise Malformed(f"{label} is not JSON.", hint=_HINT) from None


def typed_json(adapter: TypeAdapter[T], content: bytes, label: str, kind: str, *, hint: str = _HINT) -> T:
    """Parse strict JSON as a value of a type, without other fields. Raises Malformed: `label` is not
    `kind`."""
    strict_json(content, label)
    try:
        return adapter.validate_json(content, strict=True, extra="forbid")
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        names = ".".join(map(str, problem["loc"]))
        raise Malformed(f"{label} is not {kind}: {names}: {problem['msg']}.", hint=hint) from None


class _Repeated(Exception):
    """A key that an object has twice."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict[str, Any]()
    for key, value in pairs:
        if key in values:
            raise _Repeated(key)
        values[key] = value
    return values


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _object(value: Any, fields: frozenset[str], label: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{label} is not a JSON object.", hint=_HINT)
    if missing := sorted(fields - value.keys()):
        raise Malformed(f"{label} lacks {', '.join(missing)}.", hint=_HINT)
    if unknown := sorted(value.keys() - fields):
        raise Malformed(f"{label} has the unknown field {unknown[0]!r}.", hint=_HINT)
    return value


def _signature(value: Any) -> Signature:
    fields = _object(value, _SIGNATURE_FIELDS, "A signature")
    key_id = fields["keyid"]
    if not isinstance(key_id, str):
        raise Malformed("The keyid of a signature is not a text.", hint=_HINT)
    return Signature(key_id, _decoded(fields["sig"], "sig"))


def _decoded(text: Any, field: str) -> bytes:
    """Decode base64 that has exactly one way to be written."""
    try:
        content = base64.b64decode(text if isinstance(text, str) else "-", validate=True)
    except ValueError:  # not base64, or not ASCII
        content = None
    if content is None or base64.b64encode(content).decode() != text:
        raise Malformed(f"{field} is not base64.", hint=_HINT)
    return content
