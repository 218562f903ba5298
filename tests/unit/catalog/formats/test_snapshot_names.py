"""Untrusted names of a catalog as paths below a folder; layouts, which say what a snapshot's folders mean."""

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
    ("target", "complaint"),
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
        (f"{OWN}/state.json", "is reserved"),
        ("a/" + "x" * 256, "a part of it"),
        ("ä" * 128, "a part of it"),
        ("/".join(["x" * 250] * 20), "more than 4095"),
        ("x/" * 2000 + "x", "folders deep"),
    ],
)
def test_unsafe_names_are_reported(target: str, complaint: str) -> None:
    assert complaint in (unsafe(target, LIMITS) or "")


@pytest.mark.parametrize(
    "target", ["a", "a\\b", "a\nb", "t1/a 1/...", "-", "~", "ä/日本", "a/.hidden", "x" * 255]
)
def test_odd_but_safe_names_are_accepted(target: str) -> None:
    assert unsafe(target, LIMITS) is None


def test_the_reserved_folder_ignores_case_if_the_target_does() -> None:
    assert unsafe(f"{OWN.upper()}/x", LIMITS) is None
    assert unsafe(f"{OWN.upper()}/x", Limits(fold=True)) is not None


@pytest.mark.parametrize(
    ("first", "second", "fold", "complaint"),
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
def test_names_that_clash_are_reported(first: str, second: str, fold: bool, complaint: str | None) -> None:
    problem = clash(first, second, fold=fold)
    assert (complaint in problem) if complaint and problem else problem is complaint


def test_the_first_unsafe_names_are_reported_and_all_are_counted() -> None:
    with pytest.raises(Refused, match="and 5 more") as refused:
        require_safe([f"/{number:02d}" for number in range(25)], LIMITS)
    assert "'/19'" in refused.value.message
    assert "'/20'" not in refused.value.message
    require_safe(["a", "a-b", "b/c"], LIMITS)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a-", "..", ""]), min_size=1, max_size=3), max_size=8))
def test_accepted_names_can_all_be_created(parts: list[list[str]]) -> None:
    """The names come in the order of the query. Sets of files and folders predict the answer."""
    targets = sorted(("/".join(names) for names in parts), key=lambda target: target.replace("/", "\0"))
    files: set[str] = set()
    folders: set[str] = set()
    fits = True
    for target in targets:
        inside = os.path.normpath(f"/root/{target}") == f"/root/{target}" and target != ""
        parents = {str(folder) for folder in Path(target).parents}
        fits &= inside and target not in files | folders and not parents & files
        files.add(target)
        folders |= parents
    if fits:
        require_safe(targets, LIMITS)
    else:
        with pytest.raises(Refused):
            require_safe(targets, LIMITS)


# --- layouts of folders


def test_the_parts_of_a_layout_match_folders() -> None:
    layout = layout_of("yugabyte")
    assert layout == layout_of(LAYOUTS["yugabyte"])
    table, tablet, snapshot = layout.parts
    matches = [
        part.fullmatch(name) for part, name in ((table, "table-00a"), (tablet, "tablet-7.x.snapshots"))
    ]
    assert [match and match.groupdict() for match in matches] == [{"scope": "00a"}, {"region": "7.x"}]
    assert snapshot.fullmatch("any thing\n")
    assert layout.has_snapshot
    assert not tablet.fullmatch("tablet-7")
    assert not table.fullmatch("table-")


def test_a_plain_layout_has_no_parts() -> None:
    assert layout_of("plain").parts == ()
    assert not layout_of("plain").has_snapshot


def test_text_in_a_pattern_is_literal() -> None:
    (part,) = layout_of("a.b({scope})*/{name}").parts
    assert part.fullmatch("a.b(x)*")
    assert not part.fullmatch("aXb(x)*")


@pytest.mark.parametrize(
    ("text", "complaint"),
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
def test_an_invalid_pattern_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageProblem, match=complaint.replace("{", r"\{").replace("}", r"\}")):
        layout_of(text)
