"""Compiled functions and raw memory: the few unsafe primitives for reading librdkafka's messages.

This module gives types to the parts of numba that mypy cannot check, so other modules are typed. Compiled
code is cached on disk (in NUMBA_CACHE_DIR), so worker processes load it within milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lakebackup.lazy import load_names
from lakebackup_jobs.runtime.java.jars import work_folder

# Set before numba is loaded, so that this process and Spark's workers share the compiled code.
os.environ.setdefault("NUMBA_CACHE_DIR", str(work_folder() / "numba"))

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic as _intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])
Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

_njit = cast("Callable[[Function], Function]", numba.njit(cache=True, nogil=True))
memcpy = cast("Callable[..., Any]", cgutils.raw_memcpy)
intrinsic = cast("Callable[[Callable[..., Any]], Callable[..., Any]]", _intrinsic)


def compiled(function: Function) -> Function:
    """Compile a function in nopython mode, without the interpreter lock, and cache the result on disk."""
    load_names(function)
    return _njit(function)


def _loader(bits: int) -> Callable[..., Any]:
    def load(_context: Any, _address: Any) -> Any:
        def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            value = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(types.int64), generate

    return intrinsic(load)


load64 = _loader(64)
load32 = _loader(32)
load8 = _loader(8)


@intrinsic
def copy_bytes(_context: Any, _target: Any, _source: Any, _length: Any) -> Any:
    """`copy_bytes(target, source, length)`: memcpy between two addresses that do not overlap."""

    def generate(target_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        char = ir.IntType(8).as_pointer()
        to, origin = (builder.inttoptr(argument, char) for argument in arguments[:2])
        memcpy(builder, to, origin, arguments[2], 1)
        return target_context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def external(name: str, result: str, arguments: str) -> Callable[..., int]:
    """A C function of a loaded library, for compiled code.

    Types are letters: l for a long or a pointer, i for an int, v for none.
    """
    kinds: dict[str, Any] = {"l": types.int64, "i": types.int32, "v": types.void}
    signature = kinds[result](*(kinds[letter] for letter in arguments))
    return cast("Callable[..., int]", types.ExternalFunction(name, signature))
