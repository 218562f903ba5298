"""Runs the imports of our modules when a name that they bind is first used (lazy imports, as in PEP 810).

A command uses few of the libraries and modules that the files on its way name, and loading all of them takes
seconds. So imports stand at the top of a file, as everywhere, but an import of `LIBRARIES` or of a module of
ours only runs when the first function, class or statement uses its name. A name that only annotations use
never loads anything. A library that is not installed raises ModuleNotFoundError on its first use.

How it works: `install` adds a finder for `OWN_PACKAGES` alone, which runs their modules in a namespace where
a lazy import stays pending, and stores no value. Python looks for a global name in the module, then in the
module's `__builtins__`. Ours are a copy of Python's with an `__import__` that returns a `LazyImport`, and
with a `__missing__` that runs a pending import and stores its value in the module. From then on the name is
an ordinary global. `sys.modules` has only what is loaded, and no other package notices any of this.

Some tools read a module's dictionary and see only names that were used before: numba and `get_type_hints` of
a class (use `load_names`), cloudpickle when it pickles a function by value, and `dir`. An import that must
fail at once, because the failure is caught, belongs into the function that catches it.
"""

from __future__ import annotations

import builtins
import re
import sys
from functools import partial
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # this module runs before imports are lazy
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: The packages whose modules import lazily, both each other and `LIBRARIES`.
OWN_PACKAGES = frozenset({"lakebackup", "lakebackup_jobs", "lakebackup_sql", "pyspark_lakebackup"})
#: Packages and modules that take more than a few milliseconds to load, or that an extra installs.
LIBRARIES = frozenset(
    {
        "anyio", "argparse", "backports", "boto3", "botocore", "confluent_kafka", "cramjam", "cronsim",
        "cryptography", "deltalake", "duckdb", "fastapi", "fastavro", "grpc", "importlib.metadata", "jinja2",
        "llvmlite", "markupsafe", "mcp", "mcp_types", "numba", "numpy", "pandas", "polars",
        "prometheus_client", "prompt_toolkit", "py4j", "pyarrow", "pydantic", "pydantic_settings", "pygments",
        "pyrage", "pyspark", "rich", "s3transfer", "sqlglot", "ssl", "starlette", "tempfile", "tenacity",
        "urllib3", "uvicorn", "xml", "yaml",
    }
)  # fmt: skip
# The name under which a module keeps its imports that have not run: the bound name -> the statements.
_PENDING = "__lazy_imports__"


def install() -> None:
    """Make imports lazy in the modules of `OWN_PACKAGES` that are loaded from now on."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def load_names(function_or_class: Callable[..., Any]) -> None:
    """Run the lazy imports of the names that a function's code uses, or the annotations of a class.

    For those that read a module's dictionary: numba, and `typing.get_type_hints` of a class.
    """
    function: Any = function_or_class
    if not isinstance(function, type):
        _load(function.__globals__, function.__code__.co_names)
        return
    for base in function.__mro__:
        for annotation in vars(base).get("__annotations__", {}).values():
            _load(vars(sys.modules[base.__module__]), re.findall(r"\w+", str(annotation)))


def _load(namespace: dict[str, Any], names: Iterable[str]) -> None:
    for name in namespace.get(_PENDING, {}).keys() & set(names):
        _value(namespace, name)


class Statement(NamedTuple):
    """`import name`, or `from name import names`, and then the attributes of the module that a name gets."""

    name: str
    names: tuple[str, ...]
    attributes: tuple[str, ...] = ()

    def run(self, namespace: dict[str, Any]) -> Any:
        """Import for the module with this namespace. Raises what the import raises."""
        value: Any = builtins.__import__(self.name, namespace, None, self.names, 0)
        for attribute in self.attributes:
            module = value.__name__
            try:
                value = getattr(value, attribute)
            except AttributeError:
                if (value := sys.modules.get(f"{module}.{attribute}")) is None:
                    raise ImportError(
                        f"cannot import name {attribute!r} from {module!r}", name=module
                    ) from None
        return value


class LazyImport:
    """What an import statement gets instead of a module. It exists until the statement ends."""

    __slots__ = ("lazy_statement",)  # no name that a module has

    def __init__(self, statement: Statement) -> None:
        self.lazy_statement = statement

    def __getattr__(self, attribute: str) -> LazyImport:
        """What `from a import attribute` binds, or `import a.attribute as b`."""
        name, names, attributes = self.lazy_statement
        return LazyImport(Statement(name, (attribute,) if names else (), (*attributes, attribute)))


def _import(
    name: str,
    globals_: Mapping[str, Any] | None = None,
    locals_: Mapping[str, Any] | None = None,
    names: tuple[str, ...] | None = (),
    level: int = 0,
) -> Any:
    """`__import__` for modules of ours. Imports in functions and classes run at once."""
    top = name.partition(".")[0]
    lazy = top in OWN_PACKAGES or top in LIBRARIES or name in LIBRARIES
    if lazy and not level and isinstance(locals_, _Namespace):
        return LazyImport(Statement(name, names or ()))
    return builtins.__import__(name, globals_, locals_, names or (), level)


def _value(namespace: dict[str, Any], name: str) -> Any:
    """The value of a module's name; runs the lazy imports that bind it. Raises KeyError if nothing does."""
    statements: tuple[Statement, ...] = namespace[_PENDING].get(name, ())
    if not statements:
        return namespace[name]  # another thread has just stored it
    for statement in statements:
        value = statement.run(namespace)
    namespace[name] = value
    namespace[_PENDING].pop(name, None)
    return value


def _attribute(namespace: dict[str, Any], name: str) -> Any:
    """The `__getattr__` of a module of ours, for those that look into it from outside."""
    if name in namespace[_PENDING] or name in namespace:
        return _value(namespace, name)
    raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")


class _Builtins(dict[str, Any]):
    """The `__builtins__` of modules of ours, where Python looks for a name that a module does not have."""

    def __missing__(self, name: str) -> Any:
        namespace = sys._getframe(1).f_globals  # noqa: SLF001 - of the code that uses the name
        if name in namespace.get(_PENDING, ()) or name in namespace:
            return _value(namespace, name)
        return vars(builtins)[name]  # added after this copy was made


class _Namespace(dict[str, Any]):
    """The local names of a module of ours while it runs. They are its globals, without lazy imports."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__()
        self.globals = namespace
        self.pending: dict[str, tuple[Statement, ...]] = namespace[_PENDING]

    def __getitem__(self, name: str) -> Any:
        return self.globals[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if type(value) is LazyImport:
            # `import a.b` and `import a.c` bind the same name, and both run.
            self.pending[name] = (*self.pending.get(name, ()), value.lazy_statement)
        else:
            self.pending.pop(name, None)
            self.globals[name] = value

    def __delitem__(self, name: str) -> None:
        del self.globals[name]


_BUILTINS = _Builtins(vars(builtins), __import__=_import)


def _exec_module(loader: Any, module: ModuleType) -> None:
    """`exec_module` for a loader of modules of ours. A zip file's loader also loads what lies beside them."""
    if module.__name__.partition(".")[0] not in OWN_PACKAGES:
        type(loader).exec_module(loader, module)
        return
    namespace = vars(module)
    namespace[_PENDING] = {}
    namespace["__builtins__"] = _BUILTINS
    namespace["__getattr__"] = partial(_attribute, namespace)
    exec(loader.get_code(module.__name__), namespace, _Namespace(namespace))  # noqa: S102 - as every loader


class _Finder:
    """Finds modules of `OWN_PACKAGES` as Python does, and runs them with lazy imports."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module of ours. None for all others, which other finders find."""
        if name.partition(".")[0] not in OWN_PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and hasattr(loader := spec.loader, "get_code"):
            loader.exec_module = partial(_exec_module, loader)  # type: ignore[union-attr,method-assign]
        return spec
