"""Runs the imports of our modules when a name that they bind is first used (lazy imports, as in PEP 810).

A command uses few of the libraries and modules that the files on its way name, and loading all of them takes
seconds. So imports stand at the top of a file, as everywhere, but an import of `LIBRARIES` or of a module of
ours only runs when the first function, class or statement uses its name. A name that only annotations use
never loads anything. A library that is not installed raises ModuleNotFoundError on its first use.

How it works: `install` adds a finder for `OWN_PACKAGES` alone, which runs their modules in a namespace that
notes lazy imports instead of storing a value. Python looks for a global name in the module, then in the
module's `__builtins__`. Ours are a copy of Python's with an `__import__` that returns a `LazyImport`, and with
a `__missing__` that runs a noted import and stores its value in the module: from then on the name is an
ordinary global. `sys.modules` has only what is loaded, and no other package notices any of this.

Three things see names only after their first use, since they read a module's dictionary: numba (use
`load_names`), cloudpickle when it pickles a function by value, and `dir`. An import that must fail at once,
in order to be caught, belongs into a function.
"""

from __future__ import annotations

import builtins
import sys
from functools import partial
from importlib.machinery import PathFinder
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # this module runs before imports are lazy
    from collections.abc import Mapping, Sequence
    from importlib.abc import InspectLoader
    from importlib.machinery import ModuleSpec

#: The packages whose modules import lazily, both each other and `LIBRARIES`.
OWN_PACKAGES = frozenset({"lakebackup", "lakebackup_jobs", "lakebackup_sql", "pyspark_lakebackup"})
#: Packages and modules that take more than a few milliseconds to load, or that an extra installs.
LIBRARIES = frozenset(
    {
        "argparse", "backports", "boto3", "botocore", "confluent_kafka", "cramjam", "cronsim", "cryptography",
        "deltalake", "duckdb", "fastapi", "fastavro", "grpc", "importlib.metadata", "jinja2", "llvmlite",
        "markupsafe", "numba", "numpy", "pandas", "polars", "prometheus_client", "prompt_toolkit", "py4j",
        "pyarrow", "pydantic", "pydantic_settings", "pygments", "pyspark", "rich", "s3transfer", "sqlglot", "ssl",
        "starlette", "tempfile", "tenacity", "urllib3", "uvicorn", "xml", "yaml",
    }
)  # fmt: skip
# The name under which a module has its noted imports: the bound name -> the import.
_NOTED = "__lazy_imports__"


def install() -> None:
    """Make imports lazy in the modules of `OWN_PACKAGES` that are loaded from now on."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def load_names(function: FunctionType) -> None:
    """Run the lazy imports of the names that a function uses, for a compiler that reads its globals."""
    namespace = function.__globals__
    for name in namespace.get(_NOTED, {}).keys() & set(function.__code__.co_names):
        _value(namespace, name)


class LazyImport:
    """An import that has not run: `import name`, or `from name import names`, and then attributes of that.

    `before` is an import of another module of the same package (`import a.b` before `import a.c`).
    """

    __slots__ = ("_attributes", "_before", "_name", "_names")

    def __init__(
        self, name: str, names: Sequence[str] = (), attributes: Sequence[str] = (), before: Any = None
    ) -> None:
        self._name, self._names, self._attributes, self._before = name, names, attributes, before

    def __getattr__(self, attribute: str) -> LazyImport:
        """What `from … import attribute`, and `import a.attribute as b`, ask for."""
        return LazyImport(self._name, (attribute,) if self._names else (), (*self._attributes, attribute))

    def _after(self, before: object) -> LazyImport:
        """This import with the one that bound the same name before it, if both bind a package."""
        if isinstance(before, LazyImport) and not (self._attributes or before._attributes):
            return LazyImport(self._name, before=before)
        return self

    def _run(self, namespace: dict[str, Any]) -> Any:
        if self._before is not None:
            self._before._run(namespace)
        value: Any = builtins.__import__(self._name, namespace, None, self._names, 0)
        for attribute in self._attributes:
            module = value.__name__
            try:
                value = getattr(value, attribute)
            except AttributeError:
                if (value := sys.modules.get(f"{module}.{attribute}")) is None:
                    raise ImportError(f"cannot import name {attribute!r} from {module!r}", name=module) from None
        return value


def _import(
    name: str,
    globals_: Mapping[str, Any] | None = None,
    locals_: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """`__import__` for modules of ours. Imports in functions, whose locals Python does not pass, run at once."""
    top = name.partition(".")[0]
    if level or not isinstance(locals_, _Namespace) or not (
        top in LIBRARIES or top in OWN_PACKAGES or name in LIBRARIES
    ):
        return builtins.__import__(name, globals_, locals_, names or (), level)
    return LazyImport(name, names or ())


def _value(namespace: dict[str, Any], name: str) -> Any:
    """The value of a module's name; runs the lazy import that binds it. Raises KeyError if nothing does."""
    lazy_import: LazyImport | None = namespace[_NOTED].get(name)
    if lazy_import is None:
        return namespace[name]  # another thread has just stored it
    value = namespace[name] = lazy_import._run(namespace)
    namespace[_NOTED].pop(name, None)
    return value


def _attribute(namespace: dict[str, Any], name: str) -> Any:
    """The `__getattr__` of a module of ours, for those that look into it from outside."""
    if name in namespace[_NOTED] or name in namespace:
        return _value(namespace, name)
    raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")


class _Builtins(dict[str, Any]):
    """The `__builtins__` of modules of ours, where Python looks for a name that a module does not have."""

    def __missing__(self, name: str) -> Any:
        namespace = sys._getframe(1).f_globals  # noqa: SLF001 - of the code that uses the name
        if name in namespace.get(_NOTED, ()) or name in namespace:
            return _value(namespace, name)
        return vars(builtins)[name]  # added after this copy was made


class _Namespace(dict[str, Any]):
    """The local names of a module of ours while it runs. They are its globals, without lazy imports."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__()
        self.globals = namespace
        self.noted = namespace[_NOTED]

    def __getitem__(self, name: str) -> Any:
        return self.globals[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if type(value) is LazyImport:
            self.noted[name] = value._after(self.noted.get(name))
        else:
            self.noted.pop(name, None)
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
    namespace |= {
        _NOTED: {},
        "__builtins__": _BUILTINS,
        "__getattr__": partial(_attribute, namespace),
    }
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
            loader.exec_module = partial(_exec_module, loader)  # type: ignore[union-attr, method-assign]
        return spec
