"""A study file: which runs a study consists of.

::

    name = "slots"                          # also names the output folder, runs/studies/slots
    title = "How many slots does it take?"
    base = "../configs/cifar10-sound.toml"  # relative to the study file
    budget = "standard"                     # of each audit: quick, screening (grids), compact, standard, thorough
    accuracies = [0.87]                     # where methods are compared; the first decides
    smallest_difference = 0.0007            # of MSE; below it a difference is none

    [settings]                              # of every run, by dotted name
    "train.epochs" = 60

    [matrix]                                # every combination is a run
    seed = [0, 1, 2]
    sigma = [0.025, 0.05]

    [[method]]                              # each with its own curve
    name = "slot mixture"
    settings = { "surrogate.arguments.num_slots" = 4 }
    matrix = { lambda = [0.1, 0.3, 1.0] }

    [[cell]]                                # one run more
    method = "slot mixture"
    settings = { "surrogate.lambd" = 3.0 }

Axes of a matrix are dotted setting names or the short names of `AXES`. λ, σ and the weight of the closed-form attacker
(``leakage``) move along a method's curve; any other axis but seed and data makes a method of each of its values.
A surrogate other than the base's starts without the base's arguments, surrogate ``none`` has λ = 0, and σ = 0 means no
noise.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attention_cem.budget_names import BUDGETS
from attention_cem.nearest_names import did_you_mean
from attention_cem.training.config import Config
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.config_reading import config_hash, load_config
from attention_cem.training.toml_reading import read_toml

AXES = {
    "seed": "train.seed",
    "data": "data.name",
    "backbone": "model.name",
    "surrogate": "surrogate.name",
    "lambda": "surrogate.lambd",
    "sigma": "defence.gaussian_noise.sigma",
    "leakage": "defence.linear_leakage.weight",
    "defences": "defence",
}
_ALONG = ("surrogate.lambd", "defence.gaussian_noise.sigma", "defence.linear_leakage.weight")
_KEYS = (
    "name",
    "title",
    "base",
    "out",
    "budget",
    "accuracies",
    "smallest_difference",
    "reference",
    "baseline",
    "max_failures",
    "keep_challenges",
    "settings",
    "sweep",
    "matrix",
    "method",
    "cell",
)
_MAX_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Args:
        id: names its folder and its result; changes with anything that changes what is computed.
        method: whose curve it belongs to.
        config: what to train.
        settings: by dotted name, what sets it apart from other cells.
    """

    id: str
    method: str
    config: Config
    settings: Mapping[str, Any]

    @property
    def lambd(self) -> float:
        """λ."""
        return self.config.surrogate.lambd

    @property
    def sigma(self) -> float | None:
        """Standard deviation of the released noise; None without Gaussian noise."""
        return self.config.defence.get("gaussian_noise", {}).get("sigma")


@dataclass(frozen=True)
class Study:
    """A study file, read and checked; arguments as in the file, see the module."""

    name: str
    cells: tuple[Cell, ...]
    out: Path
    title: str = ""
    budget: str = "standard"
    accuracies: tuple[float, ...] = ()
    smallest_difference: float = 0.0
    reference: tuple[float, float] | None = None
    baseline: str | None = None
    max_failures: int = 2
    keep_challenges: bool = True
    file: Path | None = field(default=None, compare=False)

    def cell(self, id: str) -> Cell:
        """The cell of that id."""
        return next(cell for cell in self.cells if cell.id == id)

    def run_folder(self, cell: Cell) -> Path:
        """Where the cell is trained and audited."""
        return self.out / "runs" / cell.id

    def result_file(self, id: str) -> Path:
        """Where the cell's figures are."""
        return self.out / "results" / f"{id}.json"


def load_study(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Study:
    """Read a study file and expand its matrix; every cell's configuration is checked.

    Args:
        path: the TOML file.
        out: where runs and results go; otherwise as the file says, or ``runs/studies/<name>``.

    Raises:
        ConfigError: what is wrong, in one line.
    """
    file = Path(path)
    tree = read_study_file(file)
    for key in tree:
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key!r} in {file}{did_you_mean(key, _KEYS)}")
    name = tree.get("name", file.stem)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(f"a study's name is letters, digits, dots, dashes and underscores, got {name!r}")
    cells = list(_cells(tree, file))
    if not cells and "sweep" not in tree:
        raise ConfigError(f"{file} describes no run: give it a [matrix], a [[method]] or a [[cell]]")
    baseline = _typed(tree, "baseline", str, None)
    methods = {cell.method for cell in cells}
    if baseline is not None and baseline not in methods:
        raise ConfigError(f"baseline {baseline!r} is no method of {file}; there are: {', '.join(sorted(methods))}")
    return Study(
        name=name,
        cells=tuple(_each_once(cells)),
        out=Path(out if out is not None else _typed(tree, "out", str, f"runs/studies/{name}")),
        title=_typed(tree, "title", str, name),
        budget=_budget(tree),
        accuracies=_shares(tree),
        smallest_difference=_smallest_difference(tree),
        reference=_reference(tree),
        baseline=baseline,
        max_failures=_max_failures(tree),
        keep_challenges=_typed(tree, "keep_challenges", bool, True),
        file=file,
    )


def read_study_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The file's content as plain data; unreadable or invalid files raise `ConfigError`."""
    return read_toml(Path(path), "study")


def _each_once(cells: Iterable[Cell]) -> Iterable[Cell]:
    """Each run of a method once; one that another method has too, whose name looks the same in an id, gets its own."""
    unique: dict[str, Cell] = {}
    for cell in cells:
        if unique.get(cell.id, cell).method != cell.method:
            slug, _, digest = cell.id.rpartition("-")
            mark = hashlib.sha256(cell.method.encode()).hexdigest()[:8]
            cell = replace(cell, id=f"{slug}-{mark}-{digest}")
        unique[cell.id] = cell
    return unique.values()


def _cells(tree: Mapping[str, Any], file: Path) -> Iterator[Cell]:
    common, shared = _table(tree, "settings"), _axes(_table(tree, "matrix"))
    methods = _tables(tree, "method")
    for table in (tree, *methods, *_tables(tree, "cell")):
        for key in ("base", "name", "method"):
            if not isinstance(table.get(key, ""), str) and not (key == "method" and table is tree):
                raise ConfigError(f"{key} must be text, got {table[key]!r} in {file}")
    if not methods and shared:
        methods = [{"name": ""}]
    bases = {method.get("name"): method.get("base", tree.get("base")) for method in methods}
    count = 0
    for method in methods:
        _known_keys(method, ("name", "base", "settings", "matrix"), "[[method]]")
        axes = {**shared, **_axes(_table(method, "matrix"))}
        count += math.prod(len(values) for values in axes.values())
        if count > _MAX_CELLS:
            raise ConfigError(f"{file} describes more than {_MAX_CELLS} runs")
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            own = {**_table(method, "settings"), **point}
            label = _label(method.get("name", ""), point, axes)
            yield make_cell(label, common, own, method.get("base", tree.get("base")), file)
    for each in _tables(tree, "cell"):
        _known_keys(each, ("method", "base", "settings"), "[[cell]]")
        name = each.get("method", "")
        own = _table(each, "settings")
        yield make_cell(name, common, own, each.get("base", bases.get(name, tree.get("base"))), file)


def make_cell(label: str, common: Mapping[str, Any], own: Mapping[str, Any], base: str | None, file: Path) -> Cell:
    """One cell: the base configuration, the study's settings, then its own.

    Args:
        label: name of its method; empty for that of its surrogate.
        common: settings of the whole study, by dotted name.
        own: settings of this cell.
        base: configuration file, relative to the study file.
        file: the study file.
    """
    path = None if base is None else file.parent / base
    # A configuration changes the tables it is given; those of an axis are also the next cell's.
    wanted = copy.deepcopy({**common, **own})
    named = wanted.get("surrogate.name")
    first: dict[str, Any] = {}
    if named is not None and named != load_config(path).surrogate.name:
        first["surrogate.arguments"] = {}
    if "defence" in wanted:
        first["defence"] = wanted.pop("defence")
    if named == "none":
        wanted["surrogate.lambd"] = 0.0
    if wanted.get("defence.gaussian_noise.sigma") == 0:
        del wanted["defence.gaussian_noise.sigma"]
        wanted["defence.gaussian_noise"] = None
    config = load_config(path, {**first, **wanted})
    method = label or config.surrogate.name
    slug = re.sub(r"[^a-z0-9]+", "-", f"{config.data.name} {method}".lower()).strip("-")[:60]
    return Cell(f"{slug}-{config_hash(config)[:12]}", method, config, dict(own))


def _label(name: str, point: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> str:
    """The method's name, with the value of every axis that makes methods."""
    own = [axis for axis in axes if axis not in (*_ALONG, "train.seed", "data.name") and len(axes[axis]) > 1]
    parts = [name] if name else []
    for axis in own:
        value = point[axis]
        if axis == "defence":
            parts.append("+".join(value) or "no defence")
        elif axis in ("surrogate.name", "model.name"):
            parts.append(str(value))
        else:
            parts.append(f"{axis.split('.')[-1]} {value}")
    return ", ".join(parts)


def _axes(table: Mapping[str, Any]) -> dict[str, list[Any]]:
    axes = {}
    for name, values in table.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"an axis of a matrix is a list of values, got {name} = {values!r}")
        setting = AXES.get(name, name)
        if setting == "defence" and not all(isinstance(value, dict) for value in values):
            raise ConfigError(
                f"each value of {name} is a table of defences, {{ dropout = {{ p = 0.1 }} }}, got {values!r}"
            )
        if setting in axes:
            raise ConfigError(
                f"a matrix names {setting} twice, the second time as {name}; write all values as one axis"
            )
        axes[setting] = values
    return axes


def _table(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = tree.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{key} must be a table, got {table!r}")
    return table


def _tables(tree: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    tables = tree.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise ConfigError(f"write [[{key}]], not [{key}] or {key} = ...")
    return tables


def _known_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key {key!r} in {where}; there are: {', '.join(known)}")


def _typed(tree: Mapping[str, Any], key: str, kind: Any, default: Any) -> Any:
    value = tree.get(key, default)
    if value is not default and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
        raise ConfigError(f"{key} of a study has the wrong type, got {value!r}")
    return value


def _budget(tree: Mapping[str, Any]) -> str:
    budget = tree.get("budget", "standard")
    if budget not in BUDGETS:
        raise ConfigError(f"budget must be one of {', '.join(BUDGETS)}, got {budget!r}")
    return str(budget)


def _shares(tree: Mapping[str, Any]) -> tuple[float, ...]:
    values = tree.get("accuracies", [])
    if not isinstance(values, list) or not all(isinstance(v, int | float) and 0 <= v <= 1 for v in values):
        raise ConfigError(f"accuracies must be a list of shares between 0 and 1 (0.87, not 87), got {values!r}")
    return tuple(float(value) for value in values)


def _smallest_difference(tree: Mapping[str, Any]) -> float:
    value = tree.get("smallest_difference", 0.0)
    if not _is_number(value) or value < 0:
        raise ConfigError(f"smallest_difference must be a finite number from 0 on, got {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _reference(tree: Mapping[str, Any]) -> tuple[float, float] | None:
    value = tree.get("reference")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_number, value)):
        raise ConfigError(f"reference must be [accuracy, mse], two finite numbers, got {value!r}")
    return float(value[0]), float(value[1])


def _max_failures(tree: Mapping[str, Any]) -> int:
    value = _typed(tree, "max_failures", int, 2)
    if value < 1:
        raise ConfigError(f"max_failures must be at least 1, got {value}")
    return int(value)
