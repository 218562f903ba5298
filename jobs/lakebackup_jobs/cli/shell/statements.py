"""Finds the ends of statements in a text."""

from __future__ import annotations

from sqlglot import TokenType, tokenize
from sqlglot.errors import TokenError

BARE_COMMANDS = {"help": ".help", "quit": ".quit", "exit": ".quit"}
"""Commands that need no dot."""


def split(text: str) -> tuple[list[str], str]:
    """Returns the statements that end with a semicolon, without it, and the text after the last one."""
    try:
        tokens = tokenize(text, dialect="spark")
    except TokenError:  # a string or a comment is not closed yet
        return [], text
    statements, start = [], 0
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            statements.append(text[start : token.start].strip())
            start = token.end + 1
    open_text = text[start:] if any(token.start >= start for token in tokens) else ""
    return [statement for statement in statements if statement], open_text


def is_whole(text: str) -> bool:
    """Whether a text can run: it is empty, a command, or statements that all end."""
    return not text.strip() or is_command(text) or not split(text)[1]


def is_command(text: str) -> bool:
    """Whether a text is a command of the shell, such as `.tables` or `help`."""
    return text.lstrip().startswith(".") or bare_command(text) is not None


def bare_command(text: str) -> str | None:
    """The command that a text means without a dot, such as `quit;`; None when it means none."""
    return BARE_COMMANDS.get(text.strip().removesuffix(";").rstrip().lower())
