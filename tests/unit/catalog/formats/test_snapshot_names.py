"""Names from a catalog that nobody trusts, below a folder; what the folders of a snapshot mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Refused, UsageProblem
from lakebackup.formats.snapshots.names import OWN, Limits, clash, require_safe, unsafe
from lakebackup.formats.snapshots.tree import LAYOUTS, layout_of

LIMITS = Limits()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("a/../../etc/passwd", "'..'"),
        ("..", "'..'"),
        ("a/./b", "'.'"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("a\0b", "NUL"),
        ("a/\udcff", "UTF-8"),
        (f"{OWN}/state.json", "for itself"),
        ("a/" + "x" * 256, "a part of it"),
        ("ä" * 128, "a part of it"),
        ("/".join(["x" * 250] * 20), "more than 4095"),
        ("x/" * 2000 + "x", "folders deep"),
    ],
)
def test_names_that_lead_astray_are_reported(target: str, why: str) -> None:
    assert why in (unsafe(target, LIMITS) or "")


@pytest.mark.parametrize(
    "target", ["a", "a\\b", "a\nb", "t1/a 1/...", "-", "~", "ä/日本", "a/.hidden", "x" * 255]
)
def test_names_that_are_odd_but_safe_are_taken(target: str) -> None:
    assert unsafe(target, LIMITS) is None


def test_what_a_restore_keeps_is_its_own_in_any_case_where_case_is_one() -> None:
    assert unsafe(f"{OWN.upper()}/x", LIMITS) is None
    assert unsafe(f"{OWN.upper()}/x", Limits(fold=True)) is not None


@pytest.mark.parametrize(
    ("before", "after", "fold", "why"),
    [
        ("a", "a", False, "twice"),
        ("a", "a/b", False, "a file and a folder"),
        ("a/b", "a/b/c", False, "a file and a folder"),
        ("a", "ab", False, None),
        ("A", "a", False, None),
        ("A", "a", True, "upper and lower"),
        ("d/A/x", "d/a/y", True, "upper and lower"),
        ("A", "a/b", True, "upper and lower"),
        ("a/b", "c/d", True, None),
    ],
)
def test_what_cannot_stand_beside_each_other_is_reported(
    before: str, after: str, fold: bool, why: str | None
) -> None:
    found = clash(before, after, fold=fold)
    assert (why in found) if why and found else found is why


def test_the_first_wrong_names_are_reported_and_all_are_counted() -> None:
    with pytest.raises(Refused, match="and 5 more") as told:
        require_safe([f"/{number:02d}" for number in range(25)], LIMITS)
    assert "'/19'" in told.value.message
    assert "'/20'" not in told.value.message
    require_safe(["a", "a-b", "b/c"], LIMITS)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a-", "..", ""]), min_size=1, max_size=3), max_size=8))
def test_names_that_pass_can_all_be_made(parts: list[list[str]]) -> None:
    """In the order that the query gives them; the judge is a set of folders and files."""
    targets = sorted(("/".join(some) for some in parts), key=lambda target: target.replace("/", "\0"))
    files: set[str] = set()
    folders: set[str] = set()
    fits = True
    for target in targets:
        inside = os.path.normpath(f"/root/{target}") == f"/root/{target}" and target != ""
        above = {str(folder) for folder in Path(target).parents}
        fits &= inside and target not in files | folders and not above & files
        files.add(target)
        folders |= above
    if fits:
        require_safe(targets, LIMITS)
    else:
        with pytest.raises(Refused):
            require_safe(targets, LIMITS)


# --- layouts of folders


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
