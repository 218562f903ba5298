"""Which topics a command means, and the names they are restored under. Pure: names in, names out."""

from __future__ import annotations

import re
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from lakebackup.errors import NotFound, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# What Kafka itself allows (org.apache.kafka.common.internals.Topic).
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def is_internal(topic: str) -> bool:
    """Whether a topic is a cluster's or tool's own bookkeeping (`__consumer_offsets` and its like)."""
    return topic.startswith("__")


def select(names: Sequence[str], patterns: Sequence[str], existing: Iterable[str]) -> list[str]:
    """The topics of `existing` that are named exactly or match a regular expression whole, sorted.

    Internal topics come only when named. Raises NotFound for a name that is not there, or when nothing
    matches; UsageProblem for a bad expression or when neither names nor patterns are given.
    """
    if not names and not patterns:
        raise UsageProblem(
            "No topic was named.", hint="Name topics, or give --pattern 'app\\..*' ('.*' for all)."
        )
    expressions = [compile_pattern(pattern) for pattern in patterns]
    there = set(existing)
    missing = sorted(set(names) - there)
    if missing:
        raise NotFound(_missing(missing), hint=_nearest(missing, there))
    matched = {
        topic for topic in there if not is_internal(topic) and any(e.fullmatch(topic) for e in expressions)
    }
    chosen = matched | set(names)
    if not chosen:
        raise NotFound(
            f"No topic matches {', '.join(repr(pattern) for pattern in patterns)}.",
            hint="An expression must match the whole name, and internal topics (__…) only come by name. "
            + _some(there),
        )
    return sorted(chosen)


def select_shell(wanted: Sequence[str], existing: Iterable[str]) -> list[str]:
    """The topics of `existing` that are named exactly or match a shell pattern (`delta.*`), sorted.

    Internal topics come only when named. Raises NotFound for one that fits nothing.
    """
    there = sorted(existing)
    chosen: set[str] = set()
    for one in wanted:
        found = [t for t in there if t == one or (not is_internal(t) and fnmatchcase(t, one))]
        if not found:
            raise NotFound(f"No topic is called {one!r}, or matches it.", hint=_nearest([one], there))
        chosen.update(found)
    return sorted(chosen)


def parse_maps(maps: Sequence[str]) -> dict[str, str]:
    """`['a=b']` as `{'a': 'b'}`. Raises UsageProblem for a bad form, an illegal name or a conflict."""
    result: dict[str, str] = {}
    for text in maps:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (equals and old and new):
            raise UsageProblem(
                f"--map {text!r} is not of the form OLD=NEW.", hint="Example: --map orders=orders_restored"
            )
        check_topic_name(new)
        if old in result and result[old] != new:
            raise UsageProblem(f"--map gives {old!r} two new names: {result[old]!r} and {new!r}.")
        result[old] = new
    _refuse_collisions(result)
    return result


def target_names(topics: Iterable[str], maps: Mapping[str, str]) -> dict[str, str]:
    """The name each of `topics` is restored under. UsageProblem when two would meet or a map is idle."""
    chosen = sorted(set(topics))
    idle = sorted(set(maps) - set(chosen))
    if idle:
        raise UsageProblem(
            f"--map names {_quoted(idle)}, which is not among the topics to restore.",
            hint=_nearest(idle, chosen),
        )
    result = {topic: maps.get(topic, topic) for topic in chosen}
    _refuse_collisions(result)
    return result


def check_topic_name(topic: str) -> str:
    """`topic` when Kafka would accept it as a name, else UsageProblem."""
    if topic in (".", "..") or not _LEGAL.fullmatch(topic):
        raise UsageProblem(
            f"{topic!r} is not a name Kafka accepts.",
            hint="Use 1 to 249 letters, digits, '.', '_' or '-' (not '.' or '..').",
        )
    return topic


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression. Raises UsageProblem that points at what is wrong."""
    try:
        return re.compile(pattern)
    except re.error as error:
        where = f" at position {error.pos}" if error.pos is not None else ""
        pointer = ""
        if error.pos is not None and "\n" not in pattern:
            pointer = f"\n  {pattern}\n  {' ' * error.pos}^"
        raise UsageProblem(
            f"--pattern {pattern!r} is not a regular expression: {error.msg}{where}.{pointer}",
            hint="'.' stands for any character and '\\.' for a dot: 'app\\..*'.",
        ) from None


def _refuse_collisions(names: Mapping[str, str]) -> None:
    taken: dict[str, str] = {}
    for old, new in names.items():
        if new in taken:
            raise UsageProblem(
                f"{taken[new]!r} and {old!r} would both be restored as {new!r}.",
                hint="Give each its own name with --map.",
            )
        taken[new] = old


def _missing(missing: Sequence[str]) -> str:
    one = len(missing) == 1
    return f"{'Topic' if one else 'Topics'} {_quoted(missing)} {'does' if one else 'do'} not exist."


def _nearest(wanted: Iterable[str], there: Iterable[str]) -> str:
    known = sorted(there)
    near = dict.fromkeys(match for name in wanted for match in get_close_matches(name, known, n=3))
    return f"Did you mean {' or '.join(repr(name) for name in near)}?" if near else _some(known)


def _some(there: Iterable[str]) -> str:
    visible = sorted(topic for topic in there if not is_internal(topic))
    if not visible:
        return "There are no topics but internal ones."
    more = f" and {len(visible) - 8} more" if len(visible) > 8 else ""
    return f"There are: {', '.join(visible[:8])}{more}."


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
