"""Public names of a package, imported on first use (PEP 562)."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], *, present: Sequence[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package whose names are imported when they are first asked for.

    The package's ``__init__`` says each name twice: to type checkers as an import, to Python as a row of ``homes``.
    Type checkers must not see the result: they would take a module with ``__getattr__`` to have every name there is::

        if TYPE_CHECKING:
            from attention_cem.training.evaluation import score as score
        else:
            __all__, __getattr__, __dir__ = lazy_names(__name__, {"evaluation": ("score",)})

    Args:
        package: full name of the package.
        homes: module below the package → the public names it holds.
        present: public names that the package itself defines.

    Raises:
        AttributeError: from the returned ``__getattr__``, for a name without a home.

    >>> names, get, listed = lazy_names("json", {"decoder": ("JSONDecoder",), "encoder": ("JSONEncoder",)})
    >>> names
    ['JSONDecoder', 'JSONEncoder']
    >>> get("JSONDecoder").__module__
    'json.decoder'
    >>> get("JSONReader")
    Traceback (most recent call last):
        ...
    AttributeError: module 'json' has no attribute 'JSONReader'
    """
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}
    public = sorted({*home_of, *present})

    def get(name: str) -> Any:
        if name in home_of:
            return getattr(import_module(home_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return public, get, lambda: list(public)
