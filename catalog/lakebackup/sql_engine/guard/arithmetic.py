"""Rewrites expressions with numbers that DuckDB compares, computes or rounds differently from Spark.

Only DuckDB knows the types of columns: macros choose by them, and leave a column as it is where both engines
agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import UnsupportedError
from sqlglot.optimizer.annotate_types import annotate_types

from lakebackup.sql_engine.guard.calls import ending, macro
from lakebackup.sql_engine.guard.macros import PREFIX

_TYPES = exp.DataType.Type
_BIGGEST = 2**63 - 1
_MAX_DIGITS = 38
_MAX_PLACES = 15  # of a DOUBLE; with more, the engines may round differently
#: The expressions that compare two operands.
COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
# Texts that DuckDB reads as a number beside a number; texts of digits alone are read so by both engines.
_NUMBER = re.compile(r"\s*[-+]?(0[xXbB]\w+|[\d_]*[.]?[\d_]*([eE][-+]?\d+)?)\s*", re.ASCII)
_DIGITS = re.compile(r"\s*[-+]?\d+\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[-+]?(\d+[.]?\d*|[.]\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_WITH_SUFFIX = re.compile(r"\s*[-+]?(\d+[.]?\d*|[.]\d+)([eE][-+]?\d+)?[dDfF]\s*")
_CALLS: dict[type[exp.Expr], str] = {
    exp.BitwiseCount: "bit_count",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
    exp.Factorial: "factorial",
    exp.IsNan: "isnan",
    exp.SafeDivide: "try_divide",
}
_BIT_OPERATIONS = (exp.BitwiseNot, exp.BitwiseLeftShift, exp.BitwiseRightShift)
_BY_NAME = frozenset({"bround", "positive"})
_ROUNDINGS: dict[type[exp.Expr], str] = {exp.Ceil: "ceil", exp.Floor: "floored"}
_NUMERIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Count, exp.Sum, exp.Avg)
_MACROS_TEXT = """
    bit_count by_decimal ceil dividend divide epoch_seconds factorial floored minus mod months round seconds
    shiftleft shiftright sign try_divide wide
"""
_NUMERIC_MACROS = frozenset(f"{PREFIX}{name}{end}" for name in _MACROS_TEXT.split() for end in ("", "_of"))
_MONTHS = frozenset({"MONTH", "QUARTER", "YEAR"})


def number(node: exp.Expr) -> exp.Expr | None:
    """Return the expression with the same meaning on DuckDB; None for a node that has nothing to do with
    numbers, or that was changed in place.

    Raises UnsupportedError.
    """
    if isinstance(node, exp.Literal):
        return _literal(node)
    for kinds, change in _CHANGES:
        if isinstance(node, kinds):
            change(node)
            return None
    return _rewritten(node)


def _rewritten(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.Mod):
        return (
            None
            if _literal_value(node.expression)
            else macro("mod", node.this.unnest(), node.expression.unnest())
        )
    if isinstance(node, exp.Round):
        return _round(node)
    if isinstance(node, exp.IntDiv):
        sides = [macro(f"dividend{ending(operand)}", operand) for operand in (node.this, node.expression)]
        return exp.cast(exp.IntDiv(this=sides[0], expression=sides[1]), "bigint")
    if name := _ROUNDINGS.get(type(node)):
        if node.args.get("decimals"):
            raise UnsupportedError
        return macro(f"{name}{ending(node.this)}", node.this)
    if name := _CALLS.get(type(node)):
        if isinstance(node, _BIT_OPERATIONS):
            _check_operand(node)
        return macro(name, *(operand.unnest() for operand in node.iter_expressions()))
    return None


def _check_interval(node: exp.Expr) -> None:
    """Refuse a column of months or years, which clients of Spark cannot read."""
    parent = node.parent.parent if isinstance(node.parent, exp.Alias) else node.parent
    if isinstance(parent, exp.Select) and node.text("unit").upper().removesuffix("S") in _MONTHS:
        raise UnsupportedError


def with_scale(node: exp.Expr, replacement: exp.Expr | None = None) -> exp.Expr | None:
    """Let a sum, difference or product fail where it is a DECIMAL of more than 38 digits, which Spark cuts.
    Returns `replacement`, the node's replacement so far, if its operands cannot be DECIMALs.
    """
    sides = (node.this, node.expression)
    if not (all(map(_is_leaf, sides)) and any(map(_may_be_decimal, sides))):
        return replacement
    return macro("wide", replacement or exp.paren(node.copy()))


def _is_leaf(node: exp.Expr) -> bool:
    if isinstance(node, (exp.Neg, exp.Cast, exp.Paren)):
        return _is_leaf(node.this)
    return isinstance(node, (exp.Column, exp.Null)) or (isinstance(node, exp.Literal) and not node.is_string)


def _may_be_decimal(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return bool(node.to.is_type(_TYPES.DECIMAL))
    return (isinstance(node, exp.Column) and bool(ending(node))) or (
        isinstance(node, exp.Literal) and not node.name.isdigit()
    )


def _literal(node: exp.Literal) -> exp.Expr | None:
    if (
        node.is_string
        or not node.name.isdigit()
        or int(node.name) <= _BIGGEST
        or isinstance(node.parent, exp.Neg)
    ):
        return None
    if len(node.name) > _MAX_DIGITS:
        raise UnsupportedError
    return exp.cast(node.copy(), f"decimal({len(node.name)}, 0)")


def without_sign(node: exp.Expr) -> exp.Expr:
    """Return an operand without its parentheses and its minus sign."""
    node = node.unnest()
    return node.this if isinstance(node, exp.Neg) else node


def _literal_value(node: exp.Expr) -> float:
    """Return the absolute value of a number literal, also in a cast; 0 for anything else."""
    node = without_sign(node)
    node = node.this if isinstance(node, exp.Cast) else node
    return float(node.name) if isinstance(node, exp.Literal) and not node.is_string else 0


def _is_number_literal(node: exp.Expr) -> bool:
    return _is_literal(node, text=False)


def _is_literal(node: exp.Expr, *, text: bool) -> bool:
    node = without_sign(node)
    if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.NUMERIC_TYPES) and not text:
        node = node.this
    return isinstance(node, exp.Literal) and bool(node.is_string) == text


def _is_integer(node: exp.Expr) -> bool:
    node = without_sign(node)
    if isinstance(node, exp.Cast):
        return bool(node.to.is_type(*exp.DataType.INTEGER_TYPES))
    return node.name.isdigit()


def _is_special_number(node: exp.Expr) -> bool:
    """Whether a node is a text literal with a number that does not consist of digits alone."""
    return (
        isinstance(node, exp.Literal)
        and bool(node.is_string)
        and any(character.isdigit() for character in node.name)
        and bool(_NUMBER.fullmatch(node.name))
        and not _DIGITS.fullmatch(node.name)
    )


def _is_number(node: exp.Expr) -> bool:
    """Whether an expression is a number, as far as the syntax tells."""
    node = node.unnest()
    if isinstance(node, (exp.Window, exp.Filter)):
        return _is_number(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _NUMERIC_MACROS
    if isinstance(node, exp.Cast):
        return bool(node.to.is_type(*exp.DataType.NUMERIC_TYPES))
    if isinstance(node, _NUMERIC):
        return True
    if isinstance(node, (exp.Column, exp.Identifier)):
        return False
    return bool(annotate_types(node.copy(), dialect="spark").is_type(*exp.DataType.NUMERIC_TYPES))


def _operand_ending(node: exp.Expr) -> str:
    """Return the end of the name of a macro for an operand, see `ending`. In WHERE and ON no name can mean an
    aggregate."""
    clause = node.find_ancestor(exp.Where, exp.Join, exp.Select)
    if isinstance(node, exp.Column) and isinstance(clause, (exp.Where, exp.Join)):
        return "_of"
    return "_of" if isinstance(node, (exp.Literal, exp.Identifier)) else ending(node)


def _compare(node: exp.Expr) -> None:
    if isinstance(node, exp.Case):
        if node.this:
            _convert_beside(node.this, [branch.this for branch in node.args["ifs"]])
    elif isinstance(node, exp.In):
        _convert_beside(node.this, node.expressions)
    elif isinstance(node, exp.Between):
        _convert_beside(node.this, [node.args["low"], node.args["high"]])
    else:
        left_side, right_side = node.this, node.expression
        if isinstance(left_side, exp.Column) and isinstance(right_side, exp.Column):
            if _operand_ending(left_side) and _operand_ending(right_side):
                left_side.replace(macro("beside", left_side.copy(), right_side.copy()))
                right_side.replace(macro("beside", right_side.copy(), left_side.copy()))
            return
        _convert_beside(left_side, [right_side])
        _convert_beside(node.expression, [node.this])


def _convert_beside(operand: exp.Expr, neighbours: list[exp.Expr]) -> None:
    """Convert an operand that may be a text compared with number literals, or a number compared with texts.

    Raises UnsupportedError.
    """
    literals = [neighbour for neighbour in neighbours if _is_number_literal(neighbour)]
    has_special = any(map(_is_special_number, neighbours))
    if (not literals and not has_special) or isinstance(operand, exp.Null):
        return
    if literals and any(_is_literal(neighbour, text=True) for neighbour in neighbours):
        raise UnsupportedError
    all_integers = all(map(_is_integer, literals))
    if _is_literal(operand, text=True):
        if _is_special_number(operand) and all_integers and not has_special:
            raise UnsupportedError
        return
    if has_special:
        if isinstance(operand, (exp.RawString, exp.DPipe, exp.Concat)):
            return
        operand.replace(macro(f"beside_text{_operand_ending(operand)}", operand.copy()))
    elif not _is_number_literal(operand) and not _is_number(operand):
        kind = "beside_whole" if all_integers else "beside_point"
        operand.replace(macro(f"{kind}{_operand_ending(operand)}", operand.copy()))


def _choose(node: exp.Expr) -> None:
    """Make integers BIGINT where another value of COALESCE or IF is a text: on Spark the result is a
    BIGINT."""
    if isinstance(node, exp.If):
        if isinstance(node.parent, exp.Case):
            return
        values = [value for key in ("true", "false") if (value := node.args.get(key))]
    else:
        values = [node.this, *node.expressions]
    texts = [value for value in values if isinstance(value, exp.Literal) and value.is_string]
    if not texts:
        return
    has_special = any(map(_is_special_number, texts))
    for value in values:
        if has_special and value not in texts:
            value.replace(macro(f"beside_text{_operand_ending(value)}", value.copy()))
        elif _is_number_literal(value) and _is_integer(value):
            value.replace(exp.cast(value.copy(), "bigint"))
        elif isinstance(value, exp.Column) and ending(value):
            value.replace(macro("long_of", value.copy()))
        elif isinstance(value, exp.Cast) and value.to.is_type(_TYPES.INT):
            value.replace(exp.cast(value.copy(), "bigint"))


def _cast(node: exp.Expr) -> None:
    if not isinstance(node, exp.Cast):
        return
    source = node.this
    text = source.name if isinstance(source, exp.Literal) and source.is_string else None
    if node.to.is_type(_TYPES.DOUBLE, _TYPES.FLOAT):
        if text is not None and (
            _WITH_SUFFIX.fullmatch(text) or (_is_special_number(source) and not _DECIMAL.fullmatch(text))
        ):
            raise UnsupportedError
    elif (
        node.to.is_type(_TYPES.DECIMAL)
        and not isinstance(source, (exp.Literal, exp.Null))
        and not _is_negative_literal(source)
    ):
        source.replace(macro(f"digits{ending(source)}", source.copy()))


def _is_negative_literal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)


def _check_operand(node: exp.Expr) -> None:
    """Give NULL a type, which it lacks on DuckDB. Refuse the negation of a cast of a negative number: if that
    is the smallest of its type, DuckDB returns a larger type.

    Raises UnsupportedError.
    """
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if name and not (name in _BY_NAME and node.expressions):
        return
    operand = (node.expressions[0] if name else node.this).unnest()
    if isinstance(operand, exp.Null):
        operand.replace(exp.cast(exp.null(), "int" if isinstance(node, _BIT_OPERATIONS) else "double"))
    elif (
        isinstance(node, (exp.Neg, exp.Negative))
        and isinstance(operand, exp.Cast)
        and isinstance(operand.this, exp.Neg)
    ):
        raise UnsupportedError


def _round(node: exp.Round) -> exp.Expr | None:
    digits = node.args.get("decimals")
    if isinstance(node.this, exp.Null):
        node.this.replace(exp.cast(exp.null(), "double"))
    if digits is None or isinstance(digits, exp.Neg) or digits.name == "0":
        return None
    if not digits.name.isdigit() or int(digits.name) > _MAX_PLACES:
        raise UnsupportedError
    return macro(f"round{ending(node.this)}", node.this, digits)


_CHANGES: tuple[tuple[tuple[type[exp.Expr], ...], Callable[[exp.Expr], None]], ...] = (
    ((exp.Case, exp.In, exp.Between, *COMPARED), _compare),
    ((exp.Coalesce, exp.If), _choose),
    ((exp.Cast,), _cast),
    ((exp.Neg, exp.Negative, exp.Abs, exp.BitwiseNot, exp.Anonymous), _check_operand),
    ((exp.Interval,), _check_interval),
)
