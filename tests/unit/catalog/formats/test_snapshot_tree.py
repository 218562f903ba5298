from __future__ import annotations

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.formats.snapshots.tree import LAYOUTS, layout_of


def test_parts_name_what_a_tree_holds() -> None:
    layout = layout_of("yugabyte")
    assert layout == layout_of(LAYOUTS["yugabyte"])
    table, tablet, snapshot = layout.parts
    found = [part.fullmatch(name) for part, name in ((table, "table-00a"), (tablet, "tablet-7.x.snapshots"))]
    assert [match and match.groupdict() for match in found] == [{"scope": "00a"}, {"region": "7.x"}]
    assert snapshot.fullmatch("any thing\n")
    assert layout.has_snapshot
    assert not tablet.fullmatch("tablet-7")
    assert not table.fullmatch("table-")


def test_a_plain_tree_has_no_folders_of_meaning() -> None:
    assert layout_of("plain").parts == ()
    assert not layout_of("plain").has_snapshot


def test_text_in_a_pattern_is_text() -> None:
    (part,) = layout_of("a.b({scope})*/{name}").parts
    assert part.fullmatch("a.b(x)*")
    assert not part.fullmatch("aXb(x)*")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{scope}", "does not end in {name}"),
        ("{scope}/x{name}", "does not end in {name}"),
        ("{scope}/{tablet}/{name}", "it has {tablet}"),
        ("{scope}/{scope}/{name}", "a field twice"),
        ("{name}/{name}", "it has {name}"),
        ("{region}/{name}", "{region} without {scope}"),
        ("/{scope}/{name}", "names no folder"),
        ("../{scope}/{name}", "names no folder"),
        ("{}/{name}", "it has {}"),
    ],
)
def test_a_pattern_that_makes_no_sense(text: str, why: str) -> None:
    with pytest.raises(UsageProblem, match=why.replace("{", r"\{").replace("}", r"\}")):
        layout_of(text)
