from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli.look.tree import in_order, write

if TYPE_CHECKING:
    import pytest


def row(name: str, parent: str | None = None, **changes: Any) -> dict[str, Any]:
    number = changes.pop("number", 0)
    return {
        "source": "prod", "number": number, "backup_id": name, "parent": parent, "base": "sun",
        "place": number, "branch": 0, "kind": "differential" if parent else "full",
        "level": 1 if parent else 0, "state": "complete", "intact": True, "end_ts": 1_700_000_000_000,
        "files": 1, "bytes": 2048, "entries": 10, "note": None, **changes,
    }  # fmt: skip


def drawn(*rows: dict[str, Any]) -> list[tuple[int, str]]:
    ordered = [r | {"number": n, "place": r["place"] or n} for n, r in enumerate(rows, 1)]
    return [(depth, r["backup_id"]) for depth, r in in_order(ordered)]


def test_a_chain_is_a_line_under_its_full() -> None:
    found = drawn(row("sun"), row("mon", "sun"), row("tue", "mon"), row("sun2"), row("mon2", "sun2"))
    assert found == [(0, "sun"), (1, "mon"), (1, "tue"), (0, "sun2"), (1, "mon2")]


def test_what_is_behind_a_branch_point_is_a_line_of_its_own() -> None:
    lost = {"state": "out_of_sync"}
    found = drawn(
        row("sun"), row("mon", "sun"), row("tue", "mon", **lost), row("wed", "tue", **lost),
        row("thu", "mon", branch=1), row("fri", "thu", branch=1),
    )  # fmt: skip
    assert found == [(0, "sun"), (1, "mon"), (2, "tue"), (3, "wed"), (1, "thu"), (1, "fri")]


def test_a_cumulative_backup_and_a_merge_go_on_with_the_line() -> None:
    found = drawn(
        row("sun"), row("mon", "sun"), row("tue", "mon"), row("thu", "sun"), row("fri", "thu"),
        row("sat", "fri"), row("merge", "thu", place=6),
    )  # fmt: skip
    assert found == [
        (0, "sun"), (1, "mon"), (2, "tue"), (1, "thu"), (2, "fri"), (3, "sat"), (1, "merge"),
    ]  # fmt: skip


def test_a_line_begins_where_the_parent_is_not_there() -> None:
    assert drawn(row("mon", "sun"), row("tue", "mon")) == [(0, "mon"), (1, "tue")]


def test_a_long_chain_is_no_deeper() -> None:
    rows = [row("b1")] + [row(f"b{n}", f"b{n - 1}") for n in range(2, 5_000)]
    assert {depth for depth, _ in drawn(*rows)} == {0, 1}


def test_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row("sun", number=1),
        row("mon", "sun", number=2, state="out_of_sync"),
        row("tue", "sun", number=3, branch=1),
        row("other", number=4, source="west", intact=False),
    ]
    write(rows, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "prod",
        "└── sun  full 0  2023-11-14T22:13:20.000Z  complete  10 entries  2.0 kB",
        "    ├── mon  differential 1  2023-11-14T22:13:20.000Z  out_of_sync  10 entries  2.0 kB",
        "    └── tue  differential 1  2023-11-14T22:13:20.000Z  complete  10 entries  2.0 kB  branch 1",
        "west",
        "└── other  full 0  2023-11-14T22:13:20.000Z  not intact  10 entries  2.0 kB",
    ]
    write(rows, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["depth"], r["backup_id"]) for r in found] == [(0, "sun"), (1, "mon"), (1, "tue"), (0, "other")]
