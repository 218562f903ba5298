"""Find the schemas that the ids in keys and values stand for. Without I/O.

Each registry, each history of a registry's topic, and each context in it assigns ids of its own. This module
calls them spaces: in another space, the same id is another schema. The subjects that name a topic show which
spaces its ids belong to: `orders-value` of the default context, or `:.eu:orders-value` of the context `.eu`.
The lookup of an id follows that of a registry for a consumer: first among the subjects that name the topic,
then in their spaces. If no subject names the topic, its ids may belong to any space, so an id must mean the
same in all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

Part = Literal["key", "value"]
Row = Mapping[str, Any]

_DEFAULT_CONTEXT = "."
_MAX_REFERENCES = 1000
_MAX_LISTED = 4


class _Unusable(Exception):
    """Why the references of a schema cannot be resolved."""


def split_subject(subject: str) -> tuple[str, str]:
    """Split a subject into context and name: `:.eu:orders` to `.eu` and `orders`, `orders` to `.` and it."""
    if not subject.startswith(":."):
        return _DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema and the schemas to which it refers. `kind` is AVRO, JSON or PROTOBUF. `problem` says why the
    schema cannot be used, or is None."""

    kind: str
    text: str
    references: tuple[Schema, ...] = ()
    problem: str | None = None

    @property
    def decodes_as(self) -> Schema | str:
        """What decides how bytes decode: the schema. For JSON only its kind, since all JSON decodes alike."""
        return self.kind if self.kind == "JSON" else self


@dataclass(frozen=True, slots=True)
class Space:
    """Where ids are unique: a context in one history (`epoch`) of the registry's topic, `scope`."""

    scope: str
    epoch: str
    context: str

    def __str__(self) -> str:
        if self.context == _DEFAULT_CONTEXT:
            return f"the default context of {self.scope}"
        return f"the context {self.context} of {self.scope}"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The schema of an id in a space, and the subjects (with versions) that have it under this id.

    `name` is the name of the Avro record or the title of the JSON schema, and empty if there is none.
    """

    space: Space
    schema: Schema
    subjects: tuple[tuple[str, int | None], ...]
    name: str

    def names(self, topic: str, part: Part) -> bool:
        """Whether one of the subjects names the topic: `topic-value`, or `topic-` and the record's name."""
        names = {f"{topic}-{part}", f"{topic}-{self.name}"}
        return any(name in names for name, _ in self.subjects)

    def __str__(self) -> str:
        schema = self.name or f"a schema of the kind {self.schema.kind[:40]}"
        name, version = self.subjects[0]
        subject_text = f"subject {name}, version {version}, " if name else ""
        return f"{schema[:80]} ({subject_text[:200]}in {self.space})"


class SchemaIds:
    """The meanings of the ids of some registries. `meanings` has, for each id, one per space and schema."""

    def __init__(self, meanings: Mapping[int, Sequence[Meaning]]) -> None:
        self._meanings = meanings
        self._spaces: dict[tuple[str, Part], frozenset[Space]] = {}

    def __reduce__(self) -> tuple[type[SchemaIds], tuple[Mapping[int, Sequence[Meaning]]]]:
        return SchemaIds, (self._meanings,)

    def __bool__(self) -> bool:
        return bool(self._meanings)

    def __contains__(self, number: int) -> bool:
        return number in self._meanings

    def candidates(self, number: int, topic: str, part: Part) -> Sequence[Meaning]:
        """The meanings that the id can have in a key or value of the topic. A schema may occur repeatedly."""
        meanings = self._meanings.get(number, ())
        if subject_meanings := [meaning for meaning in meanings if meaning.names(topic, part)]:
            return subject_meanings
        spaces = self._spaces_of(topic, part)
        return [meaning for meaning in meanings if meaning.space in spaces] if spaces else meanings

    def meaning(self, number: int, topic: str, part: Part) -> Meaning | str:
        """The meaning of the id in a key or value of the topic, or a text that says why it is not known."""
        candidates = self.candidates(number, topic, part)
        if len({meaning.schema.decodes_as for meaning in candidates}) == 1:
            return candidates[0]
        if candidates:
            return (
                f"schema {number} means {_listed(candidates, ' and ')}; which of these different schemas "
                f"topic {topic} uses is not known"
            )
        if other_meanings := self._meanings.get(number):
            spaces = " and ".join(sorted(map(str, self._spaces_of(topic, part))))
            return (
                f"schema {number} is not known in {spaces}, whose subjects name topic {topic}; elsewhere it "
                f"means {_listed(other_meanings, ' and ')}"
            )
        return f"schema {number} is not known"

    def _spaces_of(self, topic: str, part: Part) -> frozenset[Space]:
        """The spaces with a subject that names the topic for this part of its records, else for the other."""
        if (topic, part) not in self._spaces:
            sibling: Part = "key" if part == "value" else "value"
            self._spaces[topic, part] = self._naming_spaces(topic, part) or self._naming_spaces(
                topic, sibling
            )
        return self._spaces[topic, part]

    def _naming_spaces(self, topic: str, part: Part) -> frozenset[Space]:
        all_meanings = (meaning for meanings in self._meanings.values() for meaning in meanings)
        return frozenset(meaning.space for meaning in all_meanings if meaning.names(topic, part))


@dataclass(frozen=True, slots=True)
class IdUse:
    """An id in keys or values of a topic that is restored into the topic `target`."""

    topic: str
    target: str
    part: Part
    number: int


def mismatches(uses: Iterable[IdUse], source_ids: SchemaIds, target_ids: SchemaIds) -> list[str]:
    """A sentence about each used id that means another schema at the target, or none.

    Bytes may look like an id without being one. So ids that the source's registry never assigned are skipped.
    If the source's registry is not backed up, ids that the target's registry does not know are skipped.
    """
    sentences = []
    for use in uses:
        if use.number not in (source_ids or target_ids):
            continue
        subject = f"topic {use.target}: id {use.number} of its {use.part}s"
        if not source_ids:
            sentences.append(f"{subject} cannot be compared: no backup holds the source's registry")
            continue
        saved = source_ids.meaning(use.number, use.topic, use.part)
        current = target_ids.meaning(use.number, use.target, use.part)
        if isinstance(current, str):  # a mapped topic is not named by the subjects
            current = target_ids.meaning(use.number, use.topic, use.part)
        if use.number not in target_ids:
            sentences.append(f"{subject} is missing from the target's registry; it is {saved}")
        elif isinstance(saved, str) or isinstance(current, str):
            if not _agree(use, source_ids, target_ids):
                problem = saved if isinstance(saved, str) else current
                sentences.append(f"{subject} cannot be compared: {problem}")
        elif saved.schema != current.schema:
            sentences.append(f"{subject} is {saved} in the backup, and {current} at the target")
    return sentences


def _agree(use: IdUse, source_ids: SchemaIds, target_ids: SchemaIds) -> bool:
    """Whether an id has the same candidates in both registries, although none of them is certain."""
    saved, current = (
        {meaning.schema for meaning in ids.candidates(use.number, use.topic, use.part)}
        for ids in (source_ids, target_ids)
    )
    return saved == current


def _listed(meanings: Sequence[Meaning], separator: str) -> str:
    """A text with the first meanings, without repetitions, and the number of the others."""
    texts = list(dict.fromkeys(map(str, meanings)))
    count = f"{separator}{len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
    return separator.join(texts[:_MAX_LISTED]) + count


def schema_ids(rows: Iterable[Row]) -> SchemaIds:
    """The meanings of all ids that registries ever assigned, from rows of the query value_schemas."""
    versions: dict[tuple[Space, str, int], set[_Definition]] = {}
    subjects: dict[tuple[int, Space, _Definition], dict[tuple[str, int | None], None]] = {}
    for row in rows:
        context, name = split_subject(row["subject"] or "")
        space = Space(row["scope"], row["epoch"], context)
        definition = _Definition(row["schema_type"] or "AVRO", row["schema_text"], row["schema_references"])
        if row["subject"] is not None and row["version"] is not None:
            versions.setdefault((space, name, row["version"]), set()).add(definition)
        subjects.setdefault((row["schema_id"], space, definition), {})[name, row["version"]] = None
    meanings: dict[int, list[Meaning]] = {}
    for (number, space, definition), names in subjects.items():
        schema = _schema(definition, space, versions, (), [0])
        meanings.setdefault(number, []).append(Meaning(space, schema, tuple(names), _name(schema)))
    return SchemaIds(meanings)


@dataclass(frozen=True, slots=True)
class _Definition:
    """A schema as a registry's record stores it. `references` is a JSON list."""

    kind: str
    text: str
    references: str | None


_Version = tuple[Space, str, int]


def _schema(
    definition: _Definition,
    space: Space,
    versions: Mapping[_Version, set[_Definition]],
    path: tuple[_Version, ...],
    reference_count: list[int],
) -> Schema:
    """Resolve the references of a schema. They name subjects of its own context, or of one that they name.

    `path` has the references that lead to the schema. `reference_count` holds the number resolved so far.
    """
    references: list[Schema] = []
    problem = None
    try:
        for reference in json.loads(definition.references or "[]"):
            context, name = split_subject(reference["subject"])
            qualified = reference["subject"].startswith(":.")
            target = Space(space.scope, space.epoch, context if qualified else space.context)
            version = (target, name, reference["version"])
            if version in path or reference_count[0] > _MAX_REFERENCES:
                raise _Unusable("its references go in a circle, or are too many")
            definitions = versions.get(version, set())
            if len(definitions) != 1:
                reason = "has had different schemas" if definitions else "no backup holds"
                subject = reference["subject"]
                raise _Unusable(f"it names version {version[2]} of {subject!r:.80}, which {reason}")
            reference_count[0] += 1
            (referred,) = definitions
            references.append(_schema(referred, target, versions, (*path, version), reference_count))
    except _Unusable as error:
        problem = str(error)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        problem = "its references cannot be read"
    return Schema(definition.kind, compact(definition.text), tuple(references), problem)


def _name(schema: Schema) -> str:
    with suppress(ValueError, RecursionError, AttributeError, TypeError):
        definition = json.loads(schema.text)
        if schema.kind == "JSON":
            return str(definition.get("title") or "")
        name, namespace = str(definition.get("name", "")), definition.get("namespace")
        return f"{namespace}.{name}" if namespace and "." not in name else name
    return ""


def compact(text: str) -> str:
    """The text without blanks between its parts if it is JSON; other texts unchanged."""
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text
