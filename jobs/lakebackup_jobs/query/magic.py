"""`%sql` and `%%sql` in IPython and Jupyter: `%load_ext lakebackup` adds them.

They call `Connection.sql`, which checks every SELECT; no other library runs SQL here.
"""

from __future__ import annotations

import re
import sys
from functools import wraps
from typing import Any

from IPython.core.magic import no_var_expand

import lakebackup
from lakebackup.errors import LakebackupError, UsageProblem
from lakebackup_jobs.query.answer import Answer

_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*<<\s*")


class SqlMagic:
    """`%sql SELECT …` and `%%sql [NAME <<]` of one IPython shell.

    They query the notebook's connection `con`, or, if there is none, the backups that LAKEBACKUP_REPO or
    lakebackup.toml names. `:name` is the value of the notebook's variable `name`.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def sql(self, line: str, cell: str | None = None) -> Answer | None:
        """Run one SELECT and show its rows. `NAME <<` before it keeps the answer in a variable instead.

            %sql SELECT source, number FROM backups

            %%sql late <<
            SELECT scope, lag_ms FROM rpo WHERE lag_ms > :limit_ms

        In the SELECT `:limit_ms` is the value of the variable `limit_ms`. The answer is that of `con.sql`:
        `late.df()` is a DataFrame.
        """
        if assignment := _ASSIGNED.match(line):
            line = line[assignment.end() :]
        elif cell is not None and line.strip():
            raise UsageProblem(
                f"%%sql {line.strip()}: the SELECT begins on the next line.",
                hint="`%%sql NAME <<` keeps the answer in the variable NAME.",
            )
        answer = self._connection().sql(line if cell is None else cell, args=self._shell.user_ns)
        if not assignment:
            return answer
        self._shell.user_ns[assignment[1]] = answer
        return None

    def _connection(self) -> lakebackup.Connection:
        connection = self._shell.user_ns.get("con")
        if isinstance(connection, lakebackup.Connection):
            return connection
        if connection is not None:
            raise UsageProblem(
                f"The variable con is a {type(connection).__name__}, not a connection of lakebackup.",
                hint="Write con = lakebackup.connect(…), or delete the variable.",
            )
        self._shell.user_ns["con"] = new_connection = lakebackup.connect()
        return new_connection


def register(shell: Any) -> None:
    """Add the magic to an IPython shell, which then shows expected errors without a traceback."""
    magic = SqlMagic(shell)

    @no_var_expand  # else IPython would put the values of `{name}` and `$name` into the SELECT unescaped
    @wraps(magic.sql)
    def sql(line: str, cell: str | None = None) -> Answer | None:
        return magic.sql(line, cell)

    shell.register_magic_function(sql, "line_cell", "sql")
    shell.set_custom_exc((LakebackupError,), _show_error)


def _show_error(
    shell: Any,  # noqa: ARG001
    kind: type[BaseException],
    error: BaseException,
    trace: Any,  # noqa: ARG001
    tb_offset: int | None = None,  # noqa: ARG001
) -> None:
    """Print the message and hint of an expected error, since a traceback would help nobody."""
    print(f"{kind.__name__}: {error}", file=sys.stderr)
