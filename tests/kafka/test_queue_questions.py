"""The questions of docs/questions.md about engines with queues, of one whose history is known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.graph_lab import GraphLab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PAGE = Path(__file__).parents[2] / "docs" / "questions.md"


def asked(lab: GraphLab, begins: str, tid: int) -> list[dict[str, Any]]:
    """The answer to the question that begins so, with a tid of this history."""
    page = PAGE.read_text(encoding="utf-8").split("\n## Of engines with queues\n")[1]
    [sql] = re.findall(rf"\*\*{begins}[^`]*```sql\n(.*?)```", page, re.DOTALL)
    return lab.rows(sql.replace("1500", str(tid)))


@pytest.mark.long
def test_questions(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph = lab.begin()
    writers = graph.writers
    writers.write("v:1", {"name": "a", "age": 1})
    long = writers.begin()
    writers.write("v:2", {"name": "b", "age": 2}, long)
    full = lab.full(graph)
    short = writers.begin()
    writers.write("id:1", 7, short)
    first = lab.backup(graph, "differential")
    writers.end(short, "commit")
    writers.change_schema(("name", "city"))
    changed = writers.tid
    writers.write("v:3", {"name": "c", "city": "x"})
    second = lab.backup(graph, "incremental")
    writers.end(long, "rollback")
    third = lab.backup(graph, "differential")

    tid = int(first["last_tid"]) + 1
    assert [(row["backup_id"], row["from_tid"]) for row in asked(lab, "Which backups", tid)] == [
        (found["backup_id"], full["last_tid"]) for found in (second, third)
    ]
    assert [row["full_number"] for row in asked(lab, "Which backups", int(full["last_tid"]))] == [1] * 4
    assert asked(lab, "Which backups", writers.tid + 1) == []

    opened = asked(lab, "Which transactions", tid)
    assert [(row["number"], row["transaction_id"]) for row in opened] == [
        (1, long), (2, long), (2, short), (3, long)
    ]  # fmt: skip
    assert {row["messages"] for row in opened} == {2}
    assert [row["since_tid"] for row in opened if row["transaction_id"] == long] == [2, 2, 2]

    for at, version in ((changed - 1, 1), (changed, 2), (changed + 100, 2)):
        [row] = asked(lab, "Which schema", at)
        assert row["version"] == version, at
    assert "city" in row["change"]

    sizes = asked(lab, "How large", tid)
    # The full has none; the first differential the two in front; the last one all since the full.
    assert [row["messages"] for row in sizes] == [None, 4, 2, 7]
    assert [row["carried"] for row in sizes] == [0, 2, 0, 2]
    assert all(row["bytes"] > 0 for row in sizes[1:])

    needed = {(row["scope"], int(row["region"])): row["needed_from"] for row in asked(lab, "From which", tid)}
    assert needed.keys() == set(graph.queues.places)
    ends = {place: graph.engine.position[place] for place in needed}
    late = {place for place in needed if needed[place] < ends[place]}
    assert late == {graph.queues.place(f"v:{long}"), graph.queues.place("v:2")}

    assert asked(lab, "When was", tid) == []
    lab.restore(lab.new_folder(), to_tid=full["last_tid"], append=True)
    [row] = asked(lab, "When was", tid)
    assert (row["backup_id"], row["left_number"]) == (full["backup_id"], None)
    later = lab.backup(graph, "differential")
    assert later["parent"] == full["backup_id"]
    left = asked(lab, "When was", tid)
    assert [row["left_backup_id"] for row in left] == [one["backup_id"] for one in (first, second, third)]
