"""Numbers as Spark compares, counts and rounds them, where DuckDB would do it otherwise.

A column's type is DuckDB's to know: its macros choose by it, and leave a column as it is where both agree.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import UnsupportedError
from sqlglot.optimizer.annotate_types import annotate_types

from lakebackup.sql_engine.guard.calls import ending, macro
from lakebackup.sql_engine.guard.macros import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPES = exp.DataType.Type
_BIGGEST = 2**63 - 1
_MOST_DIGITS = 38
_MOST_PLACES = 15  # of a DOUBLE that rounding its digits cannot change otherwise
#: What compares two operands.
COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
# Texts that DuckDB reads as a number where the other side is one; of digits alone both engines do.
_NUMBER = re.compile(r"\s*[-+]?(0[xXbB]\w+|[\d_]*[.]?[\d_]*([eE][-+]?\d+)?)\s*", re.ASCII)
_DIGITS = re.compile(r"\s*[-+]?\d+\s*", re.ASCII)
_POINT = re.compile(r"\s*[-+]?(\d+[.]?\d*|[.]\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_LETTER = re.compile(r"\s*[-+]?(\d+[.]?\d*|[.]\d+)([eE][-+]?\d+)?[dDfF]\s*")
_CALLS: dict[type[exp.Expr], str] = {
    exp.Asinh: "asinh",
    exp.BitwiseCount: "bit_count",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
    exp.Factorial: "factorial",
    exp.IsNan: "isnan",
    exp.SafeDivide: "try_divide",
}
_OF_BITS = (exp.BitwiseNot, exp.BitwiseLeftShift, exp.BitwiseRightShift)
_BY_NAME = frozenset({"bround", "positive"})
_ROUNDED: dict[type[exp.Expr], str] = {exp.Ceil: "ceil", exp.Floor: "floored"}
_OF_NUMBERS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Count, exp.Sum, exp.Avg)
_MACROS_TEXT = """
    bit_count by_decimal ceil dividend divide epoch_seconds factorial floored minus mod months round seconds
    shiftleft shiftright sign try_divide wide
"""
_MACROS_OF_NUMBERS = frozenset(f"{OTHER}{name}{end}" for name in _MACROS_TEXT.split() for end in ("", "_of"))
_MONTHS = frozenset({"MONTH", "QUARTER", "YEAR"})


def number(node: exp.Expr) -> exp.Expr | None:
    """What means the same on DuckDB; None for what is no number's, or is changed in its place.

    Raises UnsupportedError.
    """
    if isinstance(node, exp.Literal):
        return _literal(node)
    for kinds, change in _CHANGES:
        if isinstance(node, kinds):
            change(node)
            return None
    return _called(node)


def _called(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.Mod):
        return None if _value(node.expression) else macro("mod", node.this.unnest(), node.expression.unnest())
    if isinstance(node, exp.Round):
        return _round(node)
    if isinstance(node, exp.IntDiv):
        sides = [macro(f"dividend{ending(one)}", one) for one in (node.this, node.expression)]
        return exp.cast(exp.IntDiv(this=sides[0], expression=sides[1]), "bigint")
    if name := _ROUNDED.get(type(node)):
        if node.args.get("decimals"):
            raise UnsupportedError
        return macro(f"{name}{ending(node.this)}", node.this)
    if name := _CALLS.get(type(node)):
        if isinstance(node, _OF_BITS):
            _check_operand(node)
        return macro(name, *(one.unnest() for one in node.iter_expressions()))
    return None


def _check_interval(node: exp.Expr) -> None:
    """A column of months is none that a client of Spark can read."""
    shown = node.parent.parent if isinstance(node.parent, exp.Alias) else node.parent
    if isinstance(shown, exp.Select) and node.text("unit").upper().removesuffix("S") in _MONTHS:
        raise UnsupportedError


def with_scale(node: exp.Expr, made: exp.Expr | None = None) -> exp.Expr | None:
    """A sum, difference or product: Spark cuts the digits of a DECIMAL that would have more than 38."""
    sides = (node.this, node.expression)
    if not (all(map(_is_leaf, sides)) and any(map(_may_be_decimal, sides))):
        return made
    return macro("wide", made or exp.paren(node.copy()))


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
    if len(node.name) > _MOST_DIGITS:
        raise UnsupportedError
    return exp.cast(node.copy(), f"decimal({len(node.name)}, 0)")


def without_sign(node: exp.Expr) -> exp.Expr:
    """An operand without its parentheses and its minus."""
    node = node.unnest()
    return node.this if isinstance(node, exp.Neg) else node


def _value(node: exp.Expr) -> float:
    """The number that is written out, 0 for what else there is."""
    node = without_sign(node)
    node = node.this if isinstance(node, exp.Cast) else node
    return float(node.name) if isinstance(node, exp.Literal) and not node.is_string else 0


def _is_written(node: exp.Expr) -> bool:
    return _is_literal(node, text=False)


def _is_literal(node: exp.Expr, *, text: bool) -> bool:
    node = without_sign(node)
    if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.NUMERIC_TYPES) and not text:
        node = node.this
    return isinstance(node, exp.Literal) and bool(node.is_string) == text


def _is_whole(node: exp.Expr) -> bool:
    node = without_sign(node)
    if isinstance(node, exp.Cast):
        return bool(node.to.is_type(*exp.DataType.INTEGER_TYPES))
    return node.name.isdigit()


def _is_odd(node: exp.Expr) -> bool:
    """Whether it is a text of a number that is not written with digits alone."""
    return (
        isinstance(node, exp.Literal)
        and bool(node.is_string)
        and any(character.isdigit() for character in node.name)
        and bool(_NUMBER.fullmatch(node.name))
        and not _DIGITS.fullmatch(node.name)
    )


def _is_number(node: exp.Expr) -> bool:
    """Whether it is a number, as far as the text tells."""
    node = node.unnest()
    if isinstance(node, (exp.Window, exp.Filter)):
        return _is_number(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _MACROS_OF_NUMBERS
    if isinstance(node, exp.Cast):
        return bool(node.to.is_type(*exp.DataType.NUMERIC_TYPES))
    if isinstance(node, _OF_NUMBERS):
        return True
    if isinstance(node, (exp.Column, exp.Identifier)):
        return False
    return bool(annotate_types(node.copy(), dialect="spark").is_type(*exp.DataType.NUMERIC_TYPES))


def _in_condition(node: exp.Expr) -> str:
    """The end of a macro's name. Of what stands in WHERE and ON no alias is an aggregate's."""
    clause = node.find_ancestor(exp.Where, exp.Join, exp.Select)
    if isinstance(node, exp.Column) and isinstance(clause, (exp.Where, exp.Join)):
        return "_of"
    return "_of" if isinstance(node, (exp.Literal, exp.Identifier)) else ending(node)


def _compare(node: exp.Expr) -> None:
    if isinstance(node, exp.Case):
        if node.this:
            _beside(node.this, [one.this for one in node.args["ifs"]])
    elif isinstance(node, exp.In):
        _beside(node.this, node.expressions)
    elif isinstance(node, exp.Between):
        _beside(node.this, [node.args["low"], node.args["high"]])
    else:
        one, other = node.this, node.expression
        if isinstance(one, exp.Column) and isinstance(other, exp.Column):
            if _in_condition(one) and _in_condition(other):
                one.replace(macro("beside", one.copy(), other.copy()))
                other.replace(macro("beside", other.copy(), one.copy()))
            return
        _beside(one, [other])
        _beside(node.expression, [node.this])


def _beside(operand: exp.Expr, others: list[exp.Expr]) -> None:
    """An operand that may be a text beside numbers that are written out, or a number beside texts."""
    written = [one for one in others if _is_written(one)]
    odd = any(map(_is_odd, others))
    if (not written and not odd) or isinstance(operand, exp.Null):
        return
    if written and any(_is_literal(one, text=True) for one in others):
        raise UnsupportedError
    whole = all(map(_is_whole, written))
    if _is_literal(operand, text=True):
        if _is_odd(operand) and whole and not odd:
            raise UnsupportedError
        return
    if odd:
        if isinstance(operand, (exp.RawString, exp.DPipe, exp.Concat)):
            return
        operand.replace(macro(f"beside_text{_in_condition(operand)}", operand.copy()))
    elif not _is_written(operand) and not _is_number(operand):
        kind = "beside_whole" if whole else "beside_point"
        operand.replace(macro(f"{kind}{_in_condition(operand)}", operand.copy()))


def _choose(node: exp.Expr) -> None:
    """Of a whole number and a text Spark makes a BIGINT."""
    if isinstance(node, exp.If):
        if isinstance(node.parent, exp.Case):
            return
        values = [one for key in ("true", "false") if (one := node.args.get(key))]
    else:
        values = [node.this, *node.expressions]
    texts = [one for one in values if isinstance(one, exp.Literal) and one.is_string]
    if not texts:
        return
    odd = any(map(_is_odd, texts))
    for one in values:
        if odd and one not in texts:
            one.replace(macro(f"beside_text{_in_condition(one)}", one.copy()))
        elif _is_written(one) and _is_whole(one):
            one.replace(exp.cast(one.copy(), "bigint"))
        elif isinstance(one, exp.Column) and ending(one):
            one.replace(macro("long_of", one.copy()))
        elif isinstance(one, exp.Cast) and one.to.is_type(_TYPES.INT):
            one.replace(exp.cast(one.copy(), "bigint"))


def _cast(node: exp.Expr) -> None:
    if not isinstance(node, exp.Cast):
        return
    source = node.this
    text = source.name if isinstance(source, exp.Literal) and source.is_string else None
    if node.to.is_type(_TYPES.DOUBLE, _TYPES.FLOAT):
        if text is not None and (_LETTER.fullmatch(text) or (_is_odd(source) and not _POINT.fullmatch(text))):
            raise UnsupportedError
    elif (
        node.to.is_type(_TYPES.DECIMAL)
        and not isinstance(source, (exp.Literal, exp.Null))
        and not _is_plain(source)
    ):
        source.replace(macro(f"digits{ending(source)}", source.copy()))


def _is_plain(node: exp.Expr) -> bool:
    return isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)


def _check_operand(node: exp.Expr) -> None:
    """NULL has no type on DuckDB; and of the smallest number it makes one of a larger type."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if name and not (name in _BY_NAME and node.expressions):
        return
    operand = (node.expressions[0] if name else node.this).unnest()
    if isinstance(operand, exp.Null):
        operand.replace(exp.cast(exp.null(), "int" if isinstance(node, _OF_BITS) else "double"))
    elif (
        isinstance(node, (exp.Neg, exp.Negative))
        and isinstance(operand, exp.Cast)
        and isinstance(operand.this, exp.Neg)
    ):
        raise UnsupportedError


def _round(node: exp.Round) -> exp.Expr | None:
    places = node.args.get("decimals")
    if isinstance(node.this, exp.Null):
        node.this.replace(exp.cast(exp.null(), "double"))
    if places is None or isinstance(places, exp.Neg) or places.name == "0":
        return None
    if not places.name.isdigit() or int(places.name) > _MOST_PLACES:
        raise UnsupportedError
    return macro(f"round{ending(node.this)}", node.this, places)


_CHANGES: tuple[tuple[tuple[type[exp.Expr], ...], Callable[[exp.Expr], None]], ...] = (
    ((exp.Case, exp.In, exp.Between, *COMPARED), _compare),
    ((exp.Coalesce, exp.If), _choose),
    ((exp.Cast,), _cast),
    ((exp.Neg, exp.Negative, exp.Abs, exp.BitwiseNot, exp.Anonymous), _check_operand),
    ((exp.Interval,), _check_interval),
)
