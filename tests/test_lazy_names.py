from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import attention_cem

ROOT = Path(attention_cem.__file__).parent
LAZY = sorted(
    ".".join(("attention_cem", *path.parent.relative_to(ROOT).parts))
    for path in ROOT.rglob("__init__.py")
    if "lazy_names(" in path.read_text(encoding="utf-8")
)


def names_for_type_checkers(package: str) -> dict[str, str]:
    """Public name → module, as the package's ``if TYPE_CHECKING`` block imports it for re-export (``X as X``)."""
    tree = ast.parse(inspect.getsource(import_module(package)))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.asname or "": node.module or "" for node in imports for name in node.names}


def test_lazy_names__serve_the_packages_that_are_imported_before_torch() -> None:
    assert LAZY == ["attention_cem", "attention_cem.shipping", "attention_cem.studies", "attention_cem.training"]


SAME = """
import sys
from importlib import import_module
package, *promised = sys.argv[1:]
module = import_module(package)
for name, home in (each.split("=") for each in promised):
    assert getattr(module, name) is getattr(import_module(home), name), name
"""


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names__type_checkers_and_python_see_the_same_names(package: str) -> None:
    pytest.importorskip("optuna")
    promised = names_for_type_checkers(package)
    assert set(import_module(package).__all__) - {"__version__"} == set(promised)
    # In a process of its own: the serving libraries of server and client cannot be loaded into one after the other.
    told = [f"{name}={home}" for name, home in promised.items()]
    done = subprocess.run([sys.executable, "-c", SAME, package, *told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names__are_listed_and_an_unknown_one_is_refused(package: str) -> None:
    module = import_module(package)
    assert dir(module) == sorted(module.__all__)
    dir(module).clear()
    assert dir(module)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = module.no_such_name


def test_lazy_names__a_starred_import_brings_them_all() -> None:
    found: dict[str, object] = {}
    exec("from attention_cem.training import *", found)
    assert set(import_module("attention_cem.training").__all__) <= set(found)


def test_package__importing_it_imports_none_of_its_parts() -> None:
    code = "import sys, attention_cem, attention_cem.training, attention_cem.studies, attention_cem.shipping\n"
    code += "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('attention_cem', 'torch', 'numpy')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == sorted([*LAZY, "attention_cem.lazy_names"])
