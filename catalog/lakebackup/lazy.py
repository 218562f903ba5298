"""Makes libraries load when a module of ours first uses them, not when it imports them.

A command needs few of the libraries that its modules name, and loading all of them takes seconds. So `import x`
and `import x.y as z` at the top of a module of ours bind a `LazyModule` if `x` is one of `LIBRARIES`. The first
attribute that is read loads the library, and the name is then bound to the real module. `from x import y` needs an
attribute, so it loads `x` at once.

How it works: `install` adds a finder for our own packages. It lets a module's top level run with an `__import__`
of its own, which Python looks up in the module's `__builtins__`. Nothing else in the process notices. Functions
have the ordinary builtins, other packages import as ever, and `sys.modules` has only real modules. A library that
is not installed raises ModuleNotFoundError when it is first used. Python 3.15 has the same as `lazy import`
(PEP 810).
"""

from __future__ import annotations

import builtins
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec

#: The packages whose modules import lazily.
OWN_PACKAGES = frozenset({"lakebackup", "lakebackup_jobs", "pyspark_lakebackup"})
#: What they import lazily: libraries that take more than a few milliseconds to load, or that an extra installs.
LIBRARIES = frozenset(
    {
        "boto3", "botocore", "confluent_kafka", "cramjam", "cryptography", "deltalake", "duckdb", "fastapi",
        "fastavro", "grpc", "jinja2", "llvmlite", "numba", "numpy", "pandas", "polars", "prometheus_client",
        "prompt_toolkit", "py4j", "pyarrow", "pydantic", "pydantic_settings", "pygments", "pyspark", "rich",
        "s3transfer", "sqlglot", "starlette", "tenacity", "urllib3", "uvicorn", "yaml",
    }
)  # fmt: skip


class LazyModule(ModuleType):
    """A module that is loaded when one of its attributes is first read or set.

    `namespaces` are the dictionaries that may have it as a value. They get the real module in its stead.
    """

    def __init__(self, name: str, *namespaces: dict[str, Any]) -> None:
        super().__init__(name)
        vars(self)["_namespaces"] = namespaces

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # inspect and doctest look for it in everything that a module names
            raise AttributeError(name)
        return getattr(self._load(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._load(), name, value)

    def __dir__(self) -> list[str]:
        return dir(self._load())

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)

    def _load(self) -> ModuleType:
        # Python's own locks let one thread load the module while the others wait.
        module = import_module(self.__name__)
        for namespace in vars(self)["_namespaces"]:
            for name, value in list(namespace.items()):
                if value is self:
                    namespace[name] = module
        return module


def install() -> None:
    """Let the modules of `OWN_PACKAGES` that are imported from now on import `LIBRARIES` lazily."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def _import(
    name: str,
    globals_: dict[str, Any],
    locals_: Mapping[str, object] | None = None,
    names: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import for a module's top level, as `builtins.__import__`."""
    # The frame that runs the top level has its builtins already. The functions that it defines get these.
    globals_["__builtins__"] = vars(builtins)
    library, *path = name.split(".")
    if names or library not in LIBRARIES or name in sys.modules:
        return builtins.__import__(name, globals_, locals_, names or (), level)
    top = module = LazyModule(library, globals_)
    for part in path:
        parent, module = module, LazyModule(f"{module.__name__}.{part}", globals_, vars(module))
        vars(parent)[part] = module
    return top


_BUILTINS = {**vars(builtins), "__import__": _import}


def _create_module(spec: ModuleSpec) -> ModuleType | None:
    """A module of ours that runs with `_import`. None for a package beside ours in the same archive."""
    if spec.name.partition(".")[0] not in OWN_PACKAGES:
        return None
    module = ModuleType(spec.name)
    vars(module)["__builtins__"] = _BUILTINS
    return module


class _Finder:
    """Finds modules as Python does, and lets those of `OWN_PACKAGES` be created by the function above."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module of ours. None for all others, which other finders find."""
        if name.partition(".")[0] not in OWN_PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.create_module = _create_module  # type: ignore[method-assign]
        return spec
