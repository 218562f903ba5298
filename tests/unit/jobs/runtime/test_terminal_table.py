"""Tables as wide as a terminal, and in full elsewhere."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from lakebackup_jobs.runtime.terminal_table import Screen, cut, has_room, screen_of, table, wrapped_table

ID = "20261121T140512Z-8174d834"
TIME = "2026-11-21T14:05:12.000Z"
PATH = "kafka-gCn1cqEcTmaAHdZtcR0xrA/topics/orders/orders+{n}-0000000000.data"
NAMES = ["backup_id", "state", "end_time", "bytes", "path", "note"]
NUMBERS = [False, False, False, True, False, False]


def rows(count: int = 3) -> list[list[str]]:
    note = "before the upgrade of the cluster and of everything that depends on it"
    return [[ID, "complete", TIME, "123456", PATH.format(n=n), f"{n} {note}"] for n in range(count)]


def lines(width: int | None, *, colours: bool = False, first_out: tuple[str, ...] = ()) -> list[str]:
    screen = Screen(width, colours)
    return [
        re.sub("\x1b\\[1?m|\x1b\\[0m", "", line) if not colours else line
        for line in table(NAMES, rows(), numbers=NUMBERS, screen=screen, first_out=first_out)
    ]


@pytest.mark.parametrize("width", [40, 80, 120, 200, 1000])
def test_a_table_is_as_wide_as_the_terminal(width: int) -> None:
    header, *body = lines(width)
    assert all(cell_len(line.rstrip("\n")) <= width for line in [header, *body])
    assert all(line.startswith(ID) for line in body[:3]), "an id is whole, and always there"
    names = header.split()
    assert ("end_time" in names) == (TIME in body[0]), "a time is whole or not there"
    hidden_names = [name for name in NAMES if name not in names]
    note = f"Left out (--wide shows all): {', '.join(hidden_names)}"
    assert body[3:] == ([f"{cut(note, width)}\n"] if hidden_names else [])


def test_columns_are_left_out_in_order_and_texts_are_cut() -> None:
    header, first, *_ = lines(100)
    assert header.split() == ["backup_id", "state", "bytes", "path", "note"], "each time is the same"
    assert re.search(r"  0 before the up\w*…\n", first)
    assert "+0-0000000000.data" in first, "the ends of paths tell them apart"
    assert lines(75)[0].split() == ["backup_id", "bytes", "path"], "each state too; then from the right"
    assert lines(75, first_out=("bytes",))[0].split() == ["backup_id", "path", "note"]


def test_a_pipe_and_a_wide_screen_get_the_full_table() -> None:
    full_table = list(table(NAMES, rows(), numbers=NUMBERS))
    assert lines(None) == full_table
    assert [line.split("  ")[-1].strip() for line in full_table[1:]] == [row[-1] for row in rows()]


def test_rows_after_those_that_set_the_widths_are_cut_too() -> None:
    table_rows = [["a", "b"]] * 300 + [["a", "x" * 50], ["a", ID]]
    *_, long, last = table(["n", "text"], table_rows, screen=Screen(80, colours=False))
    assert long == f"a  {cut('x' * 50, 16)}\n"
    assert last == f"a  {ID}\n", "an id is whole"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("orders", 6, "orders"),
        ("orders-of-the-day", 10, "ord…he-day"),
        ("the orders of the day", 10, "the order…"),
        ("日本語日本語", 7, "日…本語"),
        ("日本語 日本語", 8, "日本語…"),
    ],
)
def test_a_text_is_cut_to_its_width(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected
    assert cell_len(cut(text, width)) <= width


def test_a_table_has_room_when_its_columns_fit_the_width() -> None:
    assert has_room(NAMES, rows(), 120)
    assert not has_room(NAMES, rows(), 100)
    assert not has_room([f"c{n}" for n in range(30)], [], 80)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_states_on_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert screen_of(io.StringIO()) is None
    assert screen_of(_Terminal()) == Screen(80, colours=True)
    assert screen_of(_Terminal(), wide=True) == Screen(None, colours=True)
    colour = Screen(80, colours=True)
    _, line = table(["state", "note"], [["failed", "failed"]], screen=colour)
    assert line == "\x1b[31mfailed\x1b[0m  failed\n"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        assert screen_of(_Terminal()) == Screen(80, colours=False)


def test_the_last_column_wraps() -> None:
    texts = [["backups", "Every committed backup, one row each, " * 4], ["rpo", ""]]
    header, *body = wrapped_table(["table", "rows"], texts, Screen(60, colours=False))
    assert "table" in header
    assert all(cell_len(line.rstrip("\n")) <= 60 for line in body)
    assert len(body) == 5
    assert all(line.startswith(" " * 9) for line in body[1:4])
    assert "".join(line[9:].replace("\n", " ") for line in body[:4]).split() == texts[0][1].split()
    assert body[-1] == "rpo\n"
