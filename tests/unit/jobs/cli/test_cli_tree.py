from __future__ import annotations

import json
from typing import Any

import pytest

from lakebackup_jobs.cli.look.tree import in_order, write


def row(name: str, parent: str | None = None, **changes: Any) -> dict[str, Any]:
    number = changes.pop("number", 0)
    return {
        "source": "prod", "number": number, "backup_id": name, "parent": parent, "base": "sun",
        "place": number, "branch": 0, "kind": "differential" if parent else "full",
        "level": 1 if parent else 0, "state": "complete", "intact": True, "end_ts": 1_700_000_000_000,
        "files": 1, "bytes": 2048, "entries": 10, "note": None, **changes,
    }  # fmt: skip


def tree_lines(*rows: dict[str, Any]) -> list[tuple[int, str]]:
    ordered = [r | {"number": n, "place": r["place"] or n} for n, r in enumerate(rows, 1)]
    return [(depth, r["backup_id"]) for depth, r in in_order(ordered)]


LOST = {"state": "out_of_sync"}


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        pytest.param(
            [row("sun"), row("mon", "sun"), row("tue", "mon"), row("sun2"), row("mon2", "sun2")],
            [(0, "sun"), (1, "mon"), (1, "tue"), (0, "sun2"), (1, "mon2")], id="a chain is a line",
        ),
        pytest.param(
            [
                row("sun"), row("mon", "sun"), row("tue", "mon", **LOST), row("wed", "tue", **LOST),
                row("thu", "mon", branch=1), row("fri", "thu", branch=1),
            ],
            [(0, "sun"), (1, "mon"), (2, "tue"), (3, "wed"), (1, "thu"), (1, "fri")],
            id="behind a branch point",
        ),
        pytest.param(
            [
                row("sun"), row("mon", "sun"), row("tue", "mon"), row("thu", "sun"), row("fri", "thu"),
                row("sat", "fri"), row("merge", "thu", place=6),
            ],
            [(0, "sun"), (1, "mon"), (2, "tue"), (1, "thu"), (2, "fri"), (3, "sat"), (1, "merge")],
            id="a cumulative backup and a merge go on with the line",
        ),
        pytest.param([row("mon", "sun"), row("tue", "mon")], [(0, "mon"), (1, "tue")], id="no parent"),
    ],
)  # fmt: skip
def test_backups_are_indented_below_their_parents(
    rows: list[dict[str, Any]], lines: list[tuple[int, str]]
) -> None:
    assert tree_lines(*rows) == lines


def test_a_long_chain_is_no_deeper() -> None:
    rows = [row("b1")] + [row(f"b{n}", f"b{n - 1}") for n in range(2, 5_000)]
    assert {depth for depth, _ in tree_lines(*rows)} == {0, 1}


def test_a_tree_is_written_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
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
    json_rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["depth"], r["backup_id"]) for r in json_rows] == [
        (0, "sun"),
        (1, "mon"),
        (1, "tue"),
        (0, "other"),
    ]
