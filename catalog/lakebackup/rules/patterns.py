"""Select topics or consumer groups by name or pattern, and map them to target names. Pure.

Patterns never match internal topics.
"""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.rules.stored_json import texts_of
from lakebackup.rules.suggestions import similar_names, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakebackup.rules.kinds import Rows


class Kind(NamedTuple):
    """A kind of thing with names: the word for it in messages, and the flags that rename and match it."""

    word: str
    option: str
    pattern: str


TOPIC = Kind("topic", "--map", "--pattern")
GROUP = Kind("consumer group", "--map-group", "--group-pattern")

# What Kafka itself allows (org.apache.kafka.common.internals.Topic).
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def is_internal(topic: str) -> bool:
    """Whether Kafka or a tool uses the topic internally, such as `__consumer_offsets`."""
    return topic.startswith("__")


def select(
    names: Sequence[str], patterns: Sequence[str], existing: Iterable[str], *, kind: Kind = TOPIC
) -> list[str]:
    """Those of `existing` that are in `names` or fully match a regular expression, sorted.

    Raises NotFound for a name that does not exist, or when nothing matches; UsageProblem for an invalid
    expression, or without names and patterns.
    """
    if not names and not patterns:
        raise UsageProblem(
            f"No {kind.word} was named.",
            hint=f"Name {kind.word}s, or give {kind.pattern} 'app\\..*' ('.*' for all).",
        )
    expressions = [compile_pattern(pattern, kind=kind) for pattern in patterns]
    there = set(existing)
    missing = sorted(set(names) - there)
    if missing:
        many = f"{kind.word.capitalize()}s {_quoted(missing)} do not exist."
        raise NotFound(
            many if len(missing) > 1 else f"{kind.word.capitalize()} {missing[0]!r} does not exist.",
            hint=_nearest(missing, there, kind),
        )
    matched = {name for name in _visible(there, kind) if any(e.fullmatch(name) for e in expressions)}
    chosen = matched | set(names)
    if not chosen:
        internal = ", and never matches internal topics (__…)" if kind is TOPIC else ""
        raise NotFound(
            f"No {kind.word} matches {_quoted(patterns)}.",
            hint=f"An expression must match the whole name{internal}. {_some(there, kind)}",
        )
    return sorted(chosen)


def select_each(patterns: Sequence[str], existing: Iterable[str]) -> list[str]:
    """As `select`, where each pattern has to match something."""
    there = sorted(existing)
    return sorted({topic for one in patterns for topic in select((), (one,), there)})


def parse_maps(maps: Sequence[str], *, kind: Kind = TOPIC) -> dict[str, str]:
    """`['a=b']` as `{'a': 'b'}`. Raises UsageProblem for a bad form, an illegal name or a conflict."""
    result: dict[str, str] = {}
    for text in maps:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (equals and old and new):
            raise UsageProblem(
                f"{kind.option} {text!r} is not of the form OLD=NEW.",
                hint=f"Example: {kind.option} orders=orders_restored",
            )
        if kind is TOPIC:
            check_topic_name(new)
        if old in result and result[old] != new:
            raise UsageProblem(f"{kind.option} gives {old!r} two new names: {result[old]!r} and {new!r}.")
        result[old] = new
    _refuse_collisions(result, kind)
    return result


def target_names(chosen: Iterable[str], maps: Mapping[str, str], *, kind: Kind = TOPIC) -> dict[str, str]:
    """The target name of each of `chosen`. UsageProblem for two equal names, or a map without a match."""
    known = sorted(set(chosen))
    unused = sorted(set(maps) - set(known))
    if unused:
        raise UsageProblem(
            f"{kind.option} names {_quoted(unused)}, which is not among the {kind.word}s to restore.",
            hint=_nearest(unused, known, kind),
        )
    result = {name: maps.get(name, name) for name in known}
    _refuse_collisions(result, kind)
    return result


def check_topic_name(topic: str) -> str:
    """Return `topic` if it is a valid name in Kafka, else raise UsageProblem."""
    if topic in (".", "..") or not _LEGAL.fullmatch(topic):
        raise UsageProblem(
            f"{topic!r} is not a valid topic name.",
            hint="Use 1 to 249 letters, digits, '.', '_' or '-' (not '.' or '..').",
        )
    return topic


def compile_pattern(pattern: str, *, kind: Kind = TOPIC) -> re.Pattern[str]:
    """Compile a regular expression. Raises UsageProblem, with the position of the error."""
    try:
        return re.compile(pattern)
    except re.error as error:
        where = f" at position {error.pos}" if error.pos is not None else ""
        pointer = ""
        if error.pos is not None and "\n" not in pattern:
            pointer = f"\n  {pattern}\n  {' ' * error.pos}^"
        raise UsageProblem(
            f"{kind.pattern} {pattern!r} is not a regular expression: {error.msg}{where}.{pointer}",
            hint="'.' stands for any character and '\\.' for a dot: 'app\\..*'.",
        ) from None


def _refuse_collisions(names: Mapping[str, str], kind: Kind) -> None:
    taken: dict[str, str] = {}
    for old, new in names.items():
        if new in taken:
            raise UsageProblem(
                f"{taken[new]!r} and {old!r} would both be restored as {new!r}.",
                hint=f"Give each its own name with {kind.option}.",
            )
        taken[new] = old


def _nearest(wanted: Iterable[str], there: Iterable[str], kind: Kind = TOPIC) -> str:
    known = sorted(there)
    similar = dict.fromkeys(match for name in wanted for match in similar_names(name, known))
    return suggestion([*similar]) or _some(known, kind)


def _some(there: Iterable[str], kind: Kind) -> str:
    visible = _visible(there, kind)
    if not visible:
        if kind is GROUP:
            return "The catalog knows no consumer group: was the backup taken with --groups none?"
        return "There are only internal topics."
    more = f" and {len(visible) - 8} more" if len(visible) > 8 else ""
    return f"There are: {', '.join(visible[:8])}{more}."


def _visible(there: Iterable[str], kind: Kind) -> list[str]:
    return sorted(name for name in there if kind is not TOPIC or not is_internal(name))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def owned_patterns(catalog: Rows, source: str) -> tuple[str, ...]:
    """The patterns of topics that the policy in force of a source names; empty without one."""
    found = catalog.rows("policy_in_force", source=source)
    return tuple(patterns_of(source, found[0]["patterns"])) if found else ()


def patterns_of(source: str, text: str | None) -> list[str]:
    """The patterns in a row of a policy's topics. Raises Damaged for a text of another form."""
    patterns = texts_of(text)
    if patterns is None:
        raise Damaged(
            f"The patterns of the policy of {source} cannot be read: {(text or '')[:100]!r}.",
            hint=f"Set them again: lakebackup policy set {quote(source)} --pattern …",
        )
    return patterns
