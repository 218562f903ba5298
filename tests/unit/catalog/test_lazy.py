"""Imports of our modules run when a name is first used, and nobody else notices."""

from __future__ import annotations

import ast
import doctest
import inspect
import pickle
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

from lakebackup import lazy

ROOT = Path(__file__).parents[3]
#: A package of ours that exists in a test alone, and libraries of other people.
OWN = "lakebackup_lazy_test"
LIBRARY, SECOND_LIBRARY = "lazy_test_library", "lazy_test_second_library"

Import = Callable[..., ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Write modules (name -> source), and import `main` of the package of ours."""
    monkeypatch.setattr(lazy, "OWN_PACKAGES", lazy.OWN_PACKAGES | {OWN})
    monkeypatch.setattr(lazy, "LIBRARIES", lazy.LIBRARIES | {LIBRARY})
    monkeypatch.syspath_prepend(str(tmp_path))

    def write_and_import(**sources: str) -> ModuleType:
        modules = {
            f"{OWN}.__init__": "",
            f"{LIBRARY}.__init__": "value = [1]",
            f"{LIBRARY}.part": "value = 2",
        }
        modules |= {name.replace("__", ".", 1) if name != "main" else name: s for name, s in sources.items()}
        modules[f"{OWN}.main"] = modules.pop("main")
        for name, source in modules.items():
            path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source), "utf-8")
        return __import__(f"{OWN}.main", fromlist=["main"])

    yield write_and_import
    for name in [name for name in sys.modules if name.partition(".")[0] in (OWN, LIBRARY, SECOND_LIBRARY)]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("statement", "expression", "loaded"),
    [
        (f"import {LIBRARY}", f"{LIBRARY}.value", {LIBRARY}),
        (f"import {LIBRARY} as l", "l.value", {LIBRARY}),
        (f"import {LIBRARY}.part", f"{LIBRARY}.part.value", {LIBRARY, f"{LIBRARY}.part"}),
        (f"import {LIBRARY}.part as p", "p.value", {LIBRARY, f"{LIBRARY}.part"}),
        (f"from {LIBRARY} import value", "value", {LIBRARY}),
        (f"from {LIBRARY} import part as p", "p.value", {LIBRARY, f"{LIBRARY}.part"}),
        (f"from {OWN}.helper import value", "value", {f"{OWN}.helper"}),
        (f"from {OWN} import helper", "helper.value", {f"{OWN}.helper"}),
    ],
)
def test_a_library_is_loaded_when_its_name_is_first_used(
    load: Import, statement: str, expression: str, loaded: set[str]
) -> None:
    module = load(
        main=f"{statement}\ndef value_of():\n    return {expression}", **{f"{OWN}__helper": "value = 3"}
    )
    assert not loaded & set(sys.modules)
    assert module.value_of()
    assert loaded <= set(sys.modules)
    assert statement.split()[-1].partition(".")[0] in vars(module), (
        "the name is an ordinary global from now on"
    )


def test_two_imports_of_one_package_both_run(load: Import) -> None:
    module = load(
        main=f"import {LIBRARY}.part\nimport {LIBRARY}.more\ndef sum_():\n"
        f"    return {LIBRARY}.part.value + {LIBRARY}.more.value",
        **{f"{LIBRARY}__more": "value = 5"},
    )
    assert module.sum_() == 7


def test_names_that_only_annotations_use_load_nothing(load: Import) -> None:
    module = load(
        main=f"from __future__ import annotations\nfrom dataclasses import dataclass\nimport {LIBRARY}\n"
        f"from {OWN}.kinds import Kind\n@dataclass\nclass Row:\n    kind: Kind\n"
        f"def function(rows: {LIBRARY}.Rows) -> None: pass",
        **{f"{OWN}__kinds": "class Kind: pass"},
    )
    assert not {LIBRARY, f"{OWN}.kinds"} & set(sys.modules)
    lazy.load_names(module.Row)
    assert get_type_hints(module.Row)["kind"].__name__ == "Kind"


def test_base_classes_and_decorators_are_loaded_where_they_stand(load: Import) -> None:
    module = load(
        main=f"from {LIBRARY}.bases import Base, decorate\n@decorate\nclass Own(Base): pass",
        **{f"{LIBRARY}__bases": "class Base: pass\ndef decorate(kind):\n    kind.seen = 1\n    return kind"},
    )
    assert module.Own.seen


def test_exceptions_of_a_lazy_library_are_caught(load: Import) -> None:
    module = load(
        main=f"from {LIBRARY}.errors import Problem\ndef caught():\n    try:\n        raise Problem\n"
        "    except Problem:\n        return True",
        **{f"{LIBRARY}__errors": "class Problem(Exception): pass"},
    )
    assert module.caught()


def test_a_missing_library_raises_on_its_first_use_as_any_import_does(
    load: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "LIBRARIES", lazy.LIBRARIES | {SECOND_LIBRARY})
    module = load(main=f"import {SECOND_LIBRARY}\ndef use():\n    return {SECOND_LIBRARY}.value")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError) as caught:
            module.use()
        assert caught.value.name == SECOND_LIBRARY
    assert SECOND_LIBRARY not in sys.modules


def test_a_missing_name_is_an_import_error(load: Import) -> None:
    module = load(main=f"from {LIBRARY} import nothing\ndef use():\n    return nothing")
    with pytest.raises(ImportError, match=f"cannot import name 'nothing' from '{LIBRARY}'"):
        module.use()


def test_an_undefined_name_stays_a_name_error(load: Import) -> None:
    module = load(main="def use():\n    return undefined")
    with pytest.raises(NameError, match="undefined"):
        module.use()
    with pytest.raises(AttributeError, match="has no attribute 'undefined'"):
        module.undefined  # noqa: B018


def test_threads_that_use_a_name_at_once_get_the_same_module(load: Import) -> None:
    module = load(
        main=f"import {LIBRARY}.slow as slow\ndef use():\n    return slow.value",
        **{f"{LIBRARY}__slow": "import time\ntime.sleep(0.2)\nvalue = []"},
    )
    values: list[object] = []
    threads = [threading.Thread(target=lambda: values.append(module.use())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(values) == 8
    assert len({id(value) for value in values}) == 1


def test_names_can_be_replaced_from_outside(load: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(main=f"from {LIBRARY} import value\ndef use():\n    return value")
    with monkeypatch.context() as patch:
        patch.setattr(module, "value", "replaced")
        assert module.use() == "replaced"
    assert module.use() == [1]


def test_a_name_that_another_module_imports_from_here_is_loaded(load: Import) -> None:
    module = load(
        main=f"from {OWN}.facade import value\ndef use():\n    return value",
        **{f"{OWN}__facade": f"from {LIBRARY} import value"},
    )
    assert module.use() == [1]


def test_imports_of_other_packages_run_at_once(load: Import) -> None:
    module = load(
        main=f"import {LIBRARY}.eager\ndef use():\n    return {LIBRARY}.eager",
        **{f"{LIBRARY}__eager": f"import {LIBRARY}.part", f"{LIBRARY}__unused": ""},
    )
    module.use()
    assert f"{LIBRARY}.part" in sys.modules


def test_imports_in_functions_run_at_once(load: Import) -> None:
    module = load(main=f"def use():\n    import {LIBRARY}\n    return {LIBRARY}")
    assert module.use() is sys.modules[LIBRARY]


def test_tools_that_look_into_a_module_load_nothing(load: Import) -> None:
    source = f'"""Docs."""\nimport {LIBRARY}\ndef function():\n    """>>> 1 + 1\n    2\n    """\n'
    module = load(main=source)
    assert inspect.getsource(module) == source
    assert inspect.getmodule(module.function) is module
    assert doctest.testmod(module).attempted == 1
    assert LIBRARY not in sys.modules


def test_classes_and_functions_are_pickled_by_their_names(load: Import) -> None:
    module = load(main=f"import {LIBRARY}\nclass Task:\n    def run(self):\n        return {LIBRARY}.value")
    assert pickle.loads(pickle.dumps(module.Task())).run() == [1]


def test_the_names_of_a_function_are_loaded_for_a_compiler(load: Import) -> None:
    module = load(
        main=f"import {LIBRARY}\nfrom {LIBRARY} import part\ndef compiled():\n    return {LIBRARY}.value"
    )
    lazy.load_names(module.compiled)
    assert LIBRARY in vars(module)
    assert "part" not in vars(module)


def test_modules_in_a_zip_file_are_lazy_and_those_beside_them_are_not(
    load: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as file:
        file.writestr(f"{OWN}/__init__.py", "")
        file.writestr(
            f"{OWN}/main.py",
            f"import {LIBRARY}\nimport {SECOND_LIBRARY}\ndef use():\n    return {LIBRARY}.value",
        )
        file.writestr(f"{LIBRARY}.py", "value = 7")
        file.writestr(f"{SECOND_LIBRARY}.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "modules.zip"))
    module = __import__(f"{OWN}.main", fromlist=["main"])
    assert SECOND_LIBRARY in sys.modules, "it is not in the list of lazy libraries"
    assert LIBRARY not in sys.modules
    assert module.use() == 7


def test_a_process_that_only_imports_lakebackup_loads_no_library() -> None:
    program = "import lakebackup.config, lakebackup.store.reader, sys; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"pyarrow", "duckdb", "deltalake", "pyspark", "numpy", "sqlglot"} & set(process.stdout.split())


def test_no_import_at_the_top_is_expected_to_fail() -> None:
    """Lazy imports fail later, so `try` would not see it."""
    for package in ("catalog", "jobs", "sql"):
        for path in ROOT.joinpath(package).rglob("*.py"):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.Try):
                    assert not any(isinstance(n, ast.Import | ast.ImportFrom) for n in ast.walk(node)), path
