"""What the ids that keys and values carry mean. Pure.

A schema registry gives ids out for each of its contexts separately, and so does each registry, and each
history of a registry's topic. The same number elsewhere is another schema. Which of these spaces a topic's
ids belong to is known from the subjects that name the topic: `orders-value` of the default context, or
`:.eu:orders-value` of the context `.eu`. An id is looked up as a registry does it for a consumer: first among
the subjects that name the topic, then in their spaces. The ids of a topic that no subject names may belong to
any space, so they must mean the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Part = Literal["key", "value"]
Row = Mapping[str, Any]

_DEFAULT_CONTEXT = "."
_MOST_REFERENCES = 1000
_MOST_LISTED = 4


class _Unusable(Exception):
    """Why the references of a schema cannot be resolved."""


def split_subject(subject: str) -> tuple[str, str]:
    """The context of a subject and its name there: `:.eu:orders` is `orders` of `.eu`; the default is `.`."""
    if not subject.startswith(":."):
        return _DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema with the schemas that it refers to. `kind` is AVRO, JSON or PROTOBUF; `problem` says why it
    cannot be used."""

    kind: str
    text: str
    references: tuple[Schema, ...] = ()
    problem: str | None = None

    @property
    def decodes_as(self) -> Schema | str:
        """What decides how bytes are decoded: text of JSON is the same under every JSON schema."""
        return self.kind if self.kind == "JSON" else self


@dataclass(frozen=True, slots=True)
class Space:
    """Where a registry gives an id out only once: a context, in one history (`epoch`) of its topic."""

    scope: str
    epoch: str
    context: str

    def __str__(self) -> str:
        if self.context == _DEFAULT_CONTEXT:
            return f"the default context of {self.scope}"
        return f"the context {self.context} of {self.scope}"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A schema that an id stands for in a space, and the subjects there under which it has that id. `name`
    is that of the Avro record, or the title of the JSON schema; empty when it has none."""

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
        under = f"subject {name}, version {version}, " if name else ""
        return f"{schema[:80]} ({under[:200]}in {self.space})"


class SchemaIds:
    """What the ids of some registries mean. `meanings`: for each id, one for each space and schema."""

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
        """What the id can mean in a key or value of the topic; the list may hold a schema more than once."""
        meanings = self._meanings.get(number, ())
        if of_subject := [meaning for meaning in meanings if meaning.names(topic, part)]:
            return of_subject
        spaces = self._spaces_of(topic, part)
        return [meaning for meaning in meanings if meaning.space in spaces] if spaces else meanings

    def meaning(self, number: int, topic: str, part: Part) -> Meaning | str:
        """What the id means in a key or value of the topic, or why that is not known."""
        candidates = self.candidates(number, topic, part)
        if len({meaning.schema.decodes_as for meaning in candidates}) == 1:
            return candidates[0]
        if candidates:
            return (
                f"schema {number} means {_listed(candidates, ' and ')}; which of these different schemas "
                f"topic {topic} uses is not known"
            )
        if elsewhere := self._meanings.get(number):
            spaces = " and ".join(sorted(map(str, self._spaces_of(topic, part))))
            return (
                f"schema {number} is not known in {spaces}, whose subjects name topic {topic}; elsewhere it "
                f"means {_listed(elsewhere, ' and ')}"
            )
        return f"schema {number} is not known"

    def _spaces_of(self, topic: str, part: Part) -> frozenset[Space]:
        """The spaces with a subject that names the topic, for this part of its records or else the other."""
        if (topic, part) not in self._spaces:
            sibling: Part = "key" if part == "value" else "value"
            self._spaces[topic, part] = self._naming(topic, part) or self._naming(topic, sibling)
        return self._spaces[topic, part]

    def _naming(self, topic: str, part: Part) -> frozenset[Space]:
        every = (meaning for meanings in self._meanings.values() for meaning in meanings)
        return frozenset(meaning.space for meaning in every if meaning.names(topic, part))


@dataclass(frozen=True, slots=True)
class IdUse:
    """An id that keys or values of a topic carry, restored into the topic `target`."""

    topic: str
    target: str
    part: Part
    number: int


def mismatches(uses: Iterable[IdUse], source_ids: SchemaIds, target_ids: SchemaIds) -> list[str]:
    """A sentence on each use of an id that means another schema at the target, or none there.

    Bytes may look like an id and be none. So ids that the source's registry never gave out do not count; of a
    source whose registry is not backed up, those that the target's registry does not know.
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
    """Whether an id can mean the same schemas in both, though it is not known which of them."""
    saved, current = (
        {meaning.schema for meaning in ids.candidates(use.number, use.topic, use.part)}
        for ids in (source_ids, target_ids)
    )
    return saved == current


def _listed(meanings: Sequence[Meaning], separator: str) -> str:
    """Some meanings as a text, each schema and space once."""
    texts = list(dict.fromkeys(map(str, meanings)))
    count = f"{separator}{len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
    return separator.join(texts[:_MOST_LISTED]) + count


def schema_ids(rows: Iterable[Row]) -> SchemaIds:
    """What each id means that registries ever gave out, from rows of the query value_schemas."""
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
    """A schema as a registry's record has it; `references` is a JSON list."""

    kind: str
    text: str
    references: str | None


_Version = tuple[Space, str, int]


def _schema(
    definition: _Definition,
    space: Space,
    versions: Mapping[_Version, set[_Definition]],
    path: tuple[_Version, ...],
    count: list[int],
) -> Schema:
    """A schema with its references, which name subjects of its own context unless they name another."""
    references: list[Schema] = []
    problem = None
    try:
        for reference in json.loads(definition.references or "[]"):
            context, name = split_subject(reference["subject"])
            qualified = reference["subject"].startswith(":.")
            target = Space(space.scope, space.epoch, context if qualified else space.context)
            version = (target, name, reference["version"])
            if version in path or count[0] > _MOST_REFERENCES:
                raise _Unusable("its references go in a circle, or are too many")
            definitions = versions.get(version, set())
            if len(definitions) != 1:
                reason = "has had different schemas" if definitions else "no backup holds"
                subject = reference["subject"]
                raise _Unusable(f"it names version {version[2]} of {subject!r:.80}, which {reason}")
            count[0] += 1
            (referred,) = definitions
            references.append(_schema(referred, target, versions, (*path, version), count))
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
    """A text of JSON without the blanks separator its parts; other text as it is."""
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text
