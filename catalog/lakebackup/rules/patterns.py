"""Select topics or consumer groups by name or pattern, and map them to target names. Without I/O.

Patterns never match internal topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.rules.kinds import Rows
from lakebackup.rules.stored_json import texts_of
from lakebackup.rules.suggestions import similar_names, suggestion


class Kind(NamedTuple):
    """What is selected, topics or groups: the word for one in messages, and the flags to rename and match."""

    word: str
    option: str
    pattern: str


TOPIC = Kind("topic", "--map", "--pattern")
GROUP = Kind("consumer group", "--map-group", "--group-pattern")

# The names of topics that Kafka allows (org.apache.kafka.common.internals.Topic).
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def is_internal(topic: str) -> bool:
    """Whether Kafka or a tool uses the topic internally, such as `__consumer_offsets`."""
    return topic.startswith("__")


def select(
    names: Sequence[str], patterns: Sequence[str], existing: Iterable[str], *, kind: Kind = TOPIC
) -> list[str]:
    """Return the names in `existing` that are in `names` or fully match one of `patterns`, sorted.

    Raises NotFound if one of `names` does not exist, or if nothing matches. Raises UsageProblem for an
    invalid regular expression, or without names and patterns.
    """
    if not names and not patterns:
        raise UsageProblem(
            f"No {kind.word} was named.",
            hint=f"Name {kind.word}s, or give {kind.pattern} 'app\\..*' ('.*' for all).",
        )
    expressions = [compile_pattern(pattern, kind=kind) for pattern in patterns]
    existing_names = set(existing)
    missing = sorted(set(names) - existing_names)
    if missing:
        message = f"{kind.word.capitalize()}s {_quoted(missing)} do not exist."
        raise NotFound(
            message if len(missing) > 1 else f"{kind.word.capitalize()} {missing[0]!r} does not exist.",
            hint=_suggest(missing, existing_names, kind),
        )
    matching = {
        name for name in _visible(existing_names, kind) if any(e.fullmatch(name) for e in expressions)
    }
    selected = matching | set(names)
    if not selected:
        internal = ", and never matches internal topics (__…)" if kind is TOPIC else ""
        raise NotFound(
            f"No {kind.word} matches {_quoted(patterns)}.",
            hint=f"An expression must match the whole name{internal}. {_list_names(existing_names, kind)}",
        )
    return sorted(selected)


def select_each(patterns: Sequence[str], existing: Iterable[str]) -> list[str]:
    """Like `select` without names, but raises NotFound if one of the patterns matches nothing."""
    existing_names = sorted(existing)
    return sorted({topic for pattern in patterns for topic in select((), (pattern,), existing_names)})


def parse_maps(maps: Sequence[str], *, kind: Kind = TOPIC) -> dict[str, str]:
    """Parse `['a=b']` to `{'a': 'b'}`. Raises UsageProblem for a wrong form, a wrong name or a conflict."""
    new_names: dict[str, str] = {}
    for text in maps:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (equals and old and new):
            raise UsageProblem(
                f"{kind.option} {text!r} is not of the form OLD=NEW.",
                hint=f"Example: {kind.option} orders=orders_restored",
            )
        if kind is TOPIC:
            check_topic_name(new)
        if old in new_names and new_names[old] != new:
            raise UsageProblem(f"{kind.option} gives {old!r} two new names: {new_names[old]!r} and {new!r}.")
        new_names[old] = new
    _refuse_collisions(new_names, kind)
    return new_names


def target_names(
    selected_names: Iterable[str], maps: Mapping[str, str], *, kind: Kind = TOPIC
) -> dict[str, str]:
    """The target name of each of `selected_names`, by `maps` or unchanged.

    Raises UsageProblem if two would be equal, or if one of `maps` is not among `selected_names`.
    """
    names = sorted(set(selected_names))
    unused = sorted(set(maps) - set(names))
    if unused:
        raise UsageProblem(
            f"{kind.option} names {_quoted(unused)}, which is not among the {kind.word}s to restore.",
            hint=_suggest(unused, names, kind),
        )
    new_names = {name: maps.get(name, name) for name in names}
    _refuse_collisions(new_names, kind)
    return new_names


def check_topic_name(topic: str) -> str:
    """Return `topic` if it is a valid name in Kafka, else raise UsageProblem."""
    if topic in (".", "..") or not _LEGAL.fullmatch(topic):
        raise UsageProblem(
            f"{topic!r} is not a valid topic name.",
            hint="Use 1 to 249 letters, digits, '.', '_' or '-' (not '.' or '..').",
        )
    return topic


def compile_pattern(pattern: str, *, kind: Kind = TOPIC) -> re.Pattern[str]:
    """Compile a regular expression. Raises UsageProblem, which shows the position of the error."""
    try:
        return re.compile(pattern)
    except re.error as error:
        location = f" at position {error.pos}" if error.pos is not None else ""
        pointer = ""
        if error.pos is not None and "\n" not in pattern:
            pointer = f"\n  {pattern}\n  {' ' * error.pos}^"
        raise UsageProblem(
            f"{kind.pattern} {pattern!r} is not a regular expression: {error.msg}{location}.{pointer}",
            hint="'.' stands for any character and '\\.' for a dot: 'app\\..*'.",
        ) from None


def _refuse_collisions(names: Mapping[str, str], kind: Kind) -> None:
    old_names: dict[str, str] = {}
    for old, new in names.items():
        if new in old_names:
            raise UsageProblem(
                f"{old_names[new]!r} and {old!r} would both be restored as {new!r}.",
                hint=f"Give each its own name with {kind.option}.",
            )
        old_names[new] = old


def _suggest(missing: Iterable[str], existing: Iterable[str], kind: Kind = TOPIC) -> str:
    names = sorted(existing)
    similar = dict.fromkeys(match for name in missing for match in similar_names(name, names))
    return suggestion([*similar]) or _list_names(names, kind)


def _list_names(existing: Iterable[str], kind: Kind) -> str:
    visible = _visible(existing, kind)
    if not visible:
        if kind is GROUP:
            return "The catalog knows no consumer group: was the backup taken with --groups none?"
        return "There are only internal topics."
    rest_count = f" and {len(visible) - 8} more" if len(visible) > 8 else ""
    return f"There are: {', '.join(visible[:8])}{rest_count}."


def _visible(names: Iterable[str], kind: Kind) -> list[str]:
    return sorted(name for name in names if kind is not TOPIC or not is_internal(name))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def owned_patterns(catalog: Rows, source: str) -> tuple[str, ...]:
    """The patterns of topics in the policy of a source that is in force; empty without a policy."""
    policies = catalog.rows("policy_in_force", source=source)
    return tuple(patterns_of(source, policies[0]["patterns"])) if policies else ()


def patterns_of(source: str, text: str | None) -> list[str]:
    """Parse the JSON `text` of patterns in a row of `policy_topics`. Raises Damaged for another form."""
    patterns = texts_of(text)
    if patterns is None:
        raise Damaged(
            f"The patterns of the policy of {source} cannot be read: {(text or '')[:100]!r}.",
            hint=f"Set them again: lakebackup policy set {quote(source)} --pattern …",
        )
    return patterns
