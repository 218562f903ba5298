"""Where statements end in what was typed."""

from __future__ import annotations

BARE_COMMANDS = {"help": ".help", "quit": ".quit", "exit": ".quit"}
"""Commands that need no dot."""


def split(text: str) -> tuple[list[str], str]:
    """The statements that end with a semicolon, without it, and what follows the last of them."""
    from sqlglot import TokenType, tokenize
    from sqlglot.errors import TokenError

    try:
        tokens = tokenize(text, dialect="spark")
    except TokenError:  # a text or a comment that has no end yet
        return [], text
    found, start = [], 0
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append(text[start : token.start].strip())
            start = token.end + 1
    rest = text[start:] if any(token.start >= start for token in tokens) else ""
    return [one for one in found if one], rest


def is_whole(text: str) -> bool:
    """Whether what was typed can run: a command, or statements of which none is open."""
    return not text.strip() or is_command(text) or not split(text)[1]


def is_command(text: str) -> bool:
    """Whether it is a command of the shell, such as `.tables` or `help`."""
    return text.lstrip().startswith(".") or bare_command(text) is not None


def bare_command(text: str) -> str | None:
    """The command that a person means who writes its name like a word of SQL, such as `quit;`."""
    return BARE_COMMANDS.get(text.strip().removesuffix(";").rstrip().lower())
