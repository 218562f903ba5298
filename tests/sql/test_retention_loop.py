"""The views of retention against one loop over the backups of a source, newest first, as restic has it.

Pure: the SQL runs on DuckDB, over backups that are rows. Policies and chains are random.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.test_keep_rules import RULES, answer, period_of

HOUR_MS = 3_600_000
QUESTION = "SELECT source, number, status, reason FROM obsolete_backups"
Policy = Mapping[str, int]


@dataclass(frozen=True)
class ModelBackup:
    """A backup: when it ended (ms), the numbers of the backups that it needs, its full first and itself last,
    whether those can all be restored, and whether a person holds it."""

    end_ts: int
    needs: tuple[int, ...]
    usable: bool
    held: bool

    @property
    def is_full(self) -> bool:
        return self.usable and len(self.needs) == 1

    @property
    def is_first(self) -> bool:
        """Whether keep_differentials counts it: a full, or a backup directly on a full."""
        return self.usable and len(self.needs) <= 2


def judge(backups: Mapping[int, ModelBackup], policy: Policy) -> list[tuple[str, str]]:
    """Status and reason of each backup, by number."""
    reasons: dict[int, str] = {}
    periods: dict[str, set[object]] = {rule: set() for rule in RULES if f"keep_{rule}" in policy}
    for number, backup in sorted(backups.items(), reverse=True):
        matching_rules = [*_newest_of_period(backup, policy, periods)]
        if backup.held:
            reasons[number] = "held"
        elif not set(policy) - {"window_from_ts", "min_redundancy"}:
            reasons[number] = "no_limit"
        elif _in_window(number, backups, policy):
            reasons[number] = "window"
        elif _in_redundancy(number, backups, policy, has_rules=bool(periods)):
            reasons[number] = "redundancy"
        elif matching_rules:
            reasons[number] = matching_rules[0]
        elif backup.is_full and _rank(number, backups, "is_full") <= policy.get("min_redundancy", 0):
            reasons[number] = "minimum"
        elif any(backups[earlier].held for earlier in backup.needs):
            reasons[number] = "inherited"
    needed = {earlier for number in reasons for earlier in backups[number].needs}
    return [
        ("KEEP" if reason == "held" else "VALID" if number in needed else "OBSOLETE", reason)
        for number in sorted(backups)
        for reason in [
            reasons.get(number) or ("needed" if number in needed else _why_obsolete(number, backups, policy))
        ]
    ]


def _newest_of_period(
    backup: ModelBackup, policy: Policy, periods: Mapping[str, set[object]]
) -> Iterator[str]:
    """The keep_… rules for which it is the newest backup of a period that counts; called newest first."""
    if backup.usable:
        for rule, counted in periods.items():
            period = period_of(rule, "UTC")(datetime.fromtimestamp(backup.end_ts / 1000, UTC))
            if period not in counted and len(counted) < policy[f"keep_{rule}"]:
                yield rule
            counted.add(period)


def _in_window(number: int, backups: Mapping[int, ModelBackup], policy: Policy) -> bool:
    if "window_days" not in policy:
        return False
    earlier = [n for n, b in backups.items() if b.usable and b.end_ts <= policy["window_from_ts"]]
    fulls_before = [n for n in earlier if backups[n].is_full]
    ended_in_window = backups[number].end_ts > policy["window_from_ts"]
    return not fulls_before or ended_in_window or number in (max(earlier), max(fulls_before))


def _in_redundancy(
    number: int, backups: Mapping[int, ModelBackup], policy: Policy, *, has_rules: bool
) -> bool:
    only_rule = "keep_differentials" in policy and "window_days" not in policy and not has_rules
    if "redundancy" not in policy and not only_rule:
        return False
    fulls = sorted((n for n, b in backups.items() if b.is_full), reverse=True)
    count = policy.get("redundancy", len(fulls) + 1)
    if len(fulls) >= count and number < fulls[count - 1]:
        return False
    full = backups[number].needs[0]
    firsts = [n for n, b in backups.items() if b.is_first and b.needs[0] == full and n <= number]
    if backups[number].is_full or not firsts or "keep_differentials" not in policy:
        return True
    return _rank(max(firsts), backups, "is_first") <= policy["keep_differentials"]


def _rank(number: int, backups: Mapping[int, ModelBackup], kind: str) -> int:
    return sum(
        getattr(backup, kind) for earlier_backup, backup in backups.items() if earlier_backup >= number
    )


def _why_obsolete(number: int, backups: Mapping[int, ModelBackup], policy: Policy) -> str:
    if any(f"keep_{rule}" in policy for rule in RULES):
        return "rules"
    if "window_days" not in policy:
        return "redundancy"
    if "redundancy" in policy:
        return "both"
    fulls_before = [n for n, b in backups.items() if b.is_full and b.end_ts <= policy["window_from_ts"]]
    return "superseded" if backups[number].needs[0] >= max(fulls_before) else "window"


def _random_backups(
    drawn: Sequence[tuple[str, int, bool, bool]],
) -> tuple[dict[int, ModelBackup], list[dict[str, Any]]]:
    """The backups of a source, and their rows. A differential (D) continues its full, an incremental (I) the
    backup before it."""
    backups: dict[int, ModelBackup] = {}
    rows: list[dict[str, Any]] = []
    end_ts, damaged = 0, set()
    for number, (kind, hours, is_damaged, is_held) in enumerate(drawn, 1):
        end_ts += hours * HOUR_MS
        earlier = backups[number - 1].needs if number > 1 and kind != "F" else ()
        needs = (*(earlier[:1] if kind == "D" else earlier), number)
        if is_damaged:
            damaged.add(number)
        backups[number] = ModelBackup(end_ts, needs, not damaged & set(needs), is_held)
        continued = {"base": str(needs[0]), "parent_place": needs[-2]} if earlier else {"kind": "full"}
        rows.append({"number": number, "end_ts": end_ts, "damaged": is_damaged, "held": is_held, **continued})
    return backups, rows


def _one_in(count: int) -> st.SearchStrategy[bool]:
    return st.integers(1, count).map(lambda number: number == count)


BACKUPS = st.lists(
    st.tuples(st.sampled_from("FDDII"), st.sampled_from((1, 5, 20, 30, 200)), _one_in(10), _one_in(15)),
    min_size=1,
    max_size=14,
)
LIMITS = st.dictionaries(
    st.sampled_from(
        ("window_days", "redundancy", "keep_differentials", "keep_last", "keep_daily", "keep_weekly")
    ),
    st.integers(1, 3),
    max_size=3,
)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(BACKUPS, LIMITS, st.integers(0, 3), st.integers(0, 400)), min_size=20, max_size=20))
def test_the_views_judge_as_the_loop(drawn: list[tuple[Any, dict[str, int], int, int]]) -> None:
    given_rows: dict[str, list[dict[str, Any]]] = {"backups": [], "in_force": [], "checks": [], "holds": []}
    expected = []
    for number, (chain, limits, minimum, hours) in enumerate(drawn):
        source = f"{number:02}"
        backups, rows = _random_backups(chain)
        policy = {**limits, "min_redundancy": minimum}
        if "window_days" in limits:
            policy["window_from_ts"] = hours * HOUR_MS
        given_rows["in_force"].append({**policy, "source": source})
        for row in rows:
            is_damaged, is_held = row.pop("damaged"), row.pop("held")
            own = {"source": source, "backup_id": f"{source}-{row['number']}"}
            base = {"base": f"{source}-{row['base']}"} if "base" in row else {}
            given_rows["backups"].append({**row, **own, **base})
            if is_damaged:
                given_rows["checks"].append({**own, "path": own["backup_id"], "outcome": "damaged"})
            if is_held:
                given_rows["holds"].append(own)
        verdicts = judge(backups, policy)
        expected += [(source, n, *verdict) for n, verdict in enumerate(verdicts, 1)]
    verdict_rows = sorted(tuple(row.values()) for row in answer(QUESTION, **given_rows))
    assert verdict_rows == expected
