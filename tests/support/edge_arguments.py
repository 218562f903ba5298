# ruff: noqa: E501 - each value stays on one line
"""Calls of each function that a person's SELECT may make, with arguments at the edges of their types.

A template names a pool of values for each argument. Each argument takes all values of its pool in turn,
while the others have the pool's first value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_POOLS = {
    "int": "7; NULL; 0; -1; 3; CAST(NULL AS INT); 2147483647; CAST(-2147483648 AS INT)",
    "long": "CAST(7 AS BIGINT); CAST(NULL AS BIGINT); 0L; -9L; 9223372036854775807L",
    "small": "2; 0; -1; 1; 100; CAST(NULL AS INT)",
    "double": "2.5D; CAST(NULL AS DOUBLE); 0.0D; -0.0D; -2.5D; 1e20D; 0.1D; CAST('NaN' AS DOUBLE); "
    "CAST('Infinity' AS DOUBLE); CAST('-Infinity' AS DOUBLE); 1.005D; 12345678.9D; 0.0001D",
    "ratio": "0.5D; 0.0D; -1.0D; 1.0D; 2.0D; CAST(NULL AS DOUBLE); CAST('NaN' AS DOUBLE)",
    "decimal": "2.50; CAST(NULL AS DECIMAL(5, 2)); 0.00; -2.55; 99999999999999.995; CAST(1 AS DECIMAL(38, 18))",
    "text": "'Straße Ab'; CAST(NULL AS STRING); ''; ' a b '; 'ὈΔΥΣΣΕΎΣ'; 'e\u0301a\u0308'; 'İıſ'; 'a.b.c'; '😀x'",
    "part": "'a'; CAST(NULL AS STRING); ''; 'ß'; 'Σ'; '.'; 'xyz'",
    "digits": "'12'; CAST(NULL AS STRING); ''; ' 7 '; '1.5'; 'x'; '-3'",
    "date": "DATE '2024-02-29'; CAST(NULL AS DATE); DATE '2026-01-31'; DATE '2025-12-29'; DATE '1969-12-31'; "
    "DATE '0001-01-01'; DATE '9999-12-31'; DATE '2026-03-29'",
    "time": "TIMESTAMP '2024-02-29 13:14:15.678901'; CAST(NULL AS TIMESTAMP); TIMESTAMP '2026-01-31 00:00:00'; "
    "TIMESTAMP '1969-12-31 23:59:59.999999'; TIMESTAMP '2026-03-29 01:30:00'; TIMESTAMP '2026-10-25 00:30:00'; "
    "TIMESTAMP '0001-01-01 00:00:00'; TIMESTAMP '9999-12-31 23:59:59'",
    "time_text": "'2024-02-29 13:14:15'; CAST(NULL AS STRING); ''; '2024-02'; '2024'; '2024-2-9'; "
    "'2024-02-30'; '2024-02-29T13:14:15.5Z'; ' 2024-02-29 '; 'epoch'; '2024-02-29 13:14'; '24-02-29'",
    "days": "1; 0; -31; 400; CAST(NULL AS INT)",
    "months": "1; 0; -1; 12; -25; CAST(NULL AS INT)",
    "seconds": "1700000000; 0; -1; CAST(NULL AS BIGINT); 253402300799",
    "zone": "'Europe/Berlin'; 'UTC'; 'America/New_York'; '+05:30'; CAST(NULL AS STRING)",
    "bool": "true; false; CAST(NULL AS BOOLEAN)",
    "bytes": "x'00ff41'; x''",
    "numbers": "array(3, 1, NULL, 2, 1); CAST(NULL AS ARRAY<INT>); CAST(array() AS ARRAY<INT>); array(5)",
    "others": "array(1, 7); array(1, NULL); CAST(NULL AS ARRAY<INT>); CAST(array() AS ARRAY<INT>)",
    "doubles": "array(1.5D, CAST('NaN' AS DOUBLE), NULL, -0.0D, 0.0D)",
    "texts": "array('b', NULL, 'a', ''); CAST(NULL AS ARRAY<STRING>); CAST(array() AS ARRAY<STRING>)",
    "lists": "array(array(1), array(2, NULL)); array(array(1), NULL); CAST(NULL AS ARRAY<ARRAY<INT>>)",
    "map": "map('a', 1, 'b', NULL); CAST(NULL AS MAP<STRING, INT>); CAST(map() AS MAP<STRING, INT>)",
    "key": "'a'; 'z'; CAST(NULL AS STRING)",
    "struct": "named_struct('a', 1, 'b', 'x'); named_struct('a', CAST(NULL AS INT), 'b', ''); "
    "CAST(NULL AS STRUCT<a: INT, b: STRING>)",
    "json": """'{"a": 1, "b": [1, 2, {"c": "x"}], "d": null, "e": 1.50}'; '[1, 2]'; 'x'; ''; CAST(NULL AS STRING); """
    """'{"a":'; '{}'; 'null'; '"t"'""",
    "pattern": r"r'[a-z]'; r'(\w)(\w)'; ''; r'\d+'; r'(?i)A'; r'a(?=b)'; r'\bA'; '['; CAST(NULL AS STRING)",
    "searched": r"'ab1 Äb22'; ''; CAST(NULL AS STRING); 'AB'; 'a\nb'",
    "any": "1; 'a'; 2.50; 2.5D; true; DATE '2024-02-29'; TIMESTAMP '2024-02-29 13:14:15.5'; NULL",
}


_POOL = re.compile("{(" + "|".join(_POOLS) + ")}")


def calls(template: str) -> Iterator[tuple[str, str]]:
    """The calls of a template such as `left({text}, {int})`: each as a value, and as a SELECT of one column v
    whose arguments are columns."""
    template_parts = _POOL.split(template)  # texts at even positions, names of pools at odd ones
    pools = [[value.strip() for value in _POOLS[name].split("; ")] for name in template_parts[1::2]]
    columns = [f"a{number}" for number in range(len(pools))]
    first = [values[0] for values in pools]
    for varied in range(-1, len(pools)):
        for value in pools[varied][1:] if varied >= 0 else [""]:
            values = [value if number == varied else default for number, default in enumerate(first)]
            call, arguments = (
                _filled(template_parts, values),
                map(" AS ".join, zip(values, columns, strict=True)),
            )
            inner = f" FROM (SELECT {', '.join(arguments)}) AS t" if pools else ""
            yield call, f"SELECT {_filled(template_parts, columns)} AS v{inner}"


def _filled(template_parts: list[str], values: list[str]) -> str:
    return "".join(text + value for text, value in zip(template_parts[::2], [*values, ""], strict=True))
