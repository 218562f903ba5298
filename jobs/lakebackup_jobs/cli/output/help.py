"""Help as plain text with a section for each panel: rich takes longer to load than the rest of help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Iterable


def write_sections(formatter: Any, rows: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """Write a section for each panel, in the order in which they come; a row is a name and what it is."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for panel, row in rows:
        sections.setdefault(panel, []).append(row)
    for panel, section in sections.items():
        with formatter.section(panel):
            formatter.write_dl(section)


class PlainHelp:
    """The help of a command or a group of commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options without a panel, then the panels in the order of their first options."""
        params = self.get_params(ctx)  # type: ignore[attr-defined]
        usual = {"argument": "Arguments", "option": "Options"}
        shown = [
            (one.rich_help_panel or usual[one.param_type_name], record)
            for one in params
            if (record := one.get_help_record(ctx)) is not None
        ]
        write_sections(formatter, sorted(shown, key=lambda row: [*usual.values(), row[0]].index(row[0])))

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """Each example in a line of its own, to copy."""
        if self.epilog:  # type: ignore[attr-defined]
            formatter.write_paragraph()
            lines = self.epilog.split("\n\n")  # type: ignore[attr-defined]
            formatter.write("".join(f"{line}\n" for line in lines))


class PlainCommand(PlainHelp, TyperCommand):
    """A verb."""
