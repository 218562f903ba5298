"""Help as plain text with a section for each panel. `rich` is not used, because it is slow to load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand


def write_sections(formatter: Any, rows: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """Write a section for each panel, in order of first appearance. A row is (panel, (name, help))."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for panel, row in rows:
        sections.setdefault(panel, []).append(row)
    for panel, section in sections.items():
        with formatter.section(panel):
            formatter.write_dl(section)


class PlainHelp:
    """The help of a command or a group of commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options without a panel, then panels in the order of their first options."""
        params = self.get_params(ctx)  # type: ignore[attr-defined]
        default_panels = {"argument": "Arguments", "option": "Options"}
        rows = [
            (param.rich_help_panel or default_panels[param.param_type_name], record)
            for param in params
            if (record := param.get_help_record(ctx)) is not None
        ]
        write_sections(
            formatter, sorted(rows, key=lambda row: [*default_panels.values(), row[0]].index(row[0]))
        )

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """Write each example on a line of its own, so that it can be copied."""
        if self.epilog:  # type: ignore[attr-defined]
            formatter.write_paragraph()
            lines = self.epilog.split("\n\n")  # type: ignore[attr-defined]
            formatter.write("".join(f"{line}\n" for line in lines))


class PlainCommand(PlainHelp, TyperCommand):
    """A verb's command, with plain help."""
