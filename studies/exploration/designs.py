"""Words for what a cell trained: the names of designs, strengths and curves on the page."""

from typing import Any

EPOCHS = 40
TITLES = {
    "noise": "noise alone",
    "kmeans": "k-means CEM",
    "one_gaussian": "one diagonal Gaussian per class",
    "slot_mixture": "slot mixture",
    "logdet": "one Gaussian per class, log-determinant",
    "gated_adversary": "gated pooling as adversary",
}


def cell_of(row: dict[str, Any]) -> dict[str, Any]:
    """The cell, in today's words: early files called the closed-form attacker a method of its own."""
    cell = {
        "leak": 0.0,
        "leak_features": 0,
        "leak_target": 0,
        "leak_places": 0,
        "shaped": False,
        "leak_followed": 0,
        "leak_every": 1,
        "blind": 0,
        "contrast": False,
        **row["cell"],
    }
    if cell["method"] == "leakage":
        cell |= {"method": "noise", "leak": cell["lambd"], "lambd": 0.0}
    return cell


def design(cell: dict[str, Any]) -> str:
    """What was trained, without the strengths that are varied along a curve."""
    parts = [TITLES.get(cell["method"], cell["method"])]
    options = dict(cell["options"])
    if cell["method"] == "kmeans" and options.pop("var_threshold", None) == 1.0 and options.pop("gamma", None):
        parts.append("floor σ²")
    parts += [f"{key.replace('_', ' ')} {value}" for key, value in sorted(options.items())]
    if cell["schedule"] == "reference":
        parts.append("λ tied to 1/lr (as published)")
    title = ", ".join(parts)
    if cell["leak"]:
        attacker = (
            f"attacker with {cell['leak_features']} random features" if cell["leak_features"] else "linear attacker"
        )
        attacker += (
            f", corrected from {cell['leak_places']}×{cell['leak_places']} places" if cell["leak_places"] else ""
        )
        attacker += f" on {cell['leak_target']} px" if cell["leak_target"] else ""
        attacker += (
            f", following by an inverse renewed every {cell['leak_followed']} steps" if cell["leak_followed"] else ""
        )
        stale = f", solved every {cell['leak_every']} steps only" if cell["leak_every"] > 1 else ""
        title = f"closed-form {attacker}{stale}" + ("" if cell["method"] == "noise" else f" + {title}")
    if cell["arl"]:
        title = f"adversarial inverter {cell['arl']}" + ("" if title == TITLES["noise"] else f" + {title}")
    if cell["blind"]:
        contrast = " and contrast" if cell["contrast"] else ""
        title += f"; client blind to {cell['blind']}×{cell['blind']} waves{contrast}"
    if cell["shaped"]:
        title += "; noise shaped as z varies within classes"
    if cell["epochs"] != EPOCHS:
        title += f"; trained for {cell['epochs']} epochs"
    return title


def strength(cell: dict[str, Any]) -> str:
    """The settings along a curve."""
    named = (("σ", cell["sigma"]), ("λ", cell["lambd"]), ("weight", cell["leak"]))
    return ", ".join(f"{name} {value:g}" for name, value in named if value)


def curve_name(cell: dict[str, Any]) -> str:
    """Cells with the same name lie on one curve: λ or a weight varies at one σ; without a surrogate σ itself varies."""
    plain_noise = cell["method"] == "noise" and not (cell["leak"] or cell["blind"])
    return design(cell) if plain_noise or cell["sigma"] == 0.025 else f"{design(cell)}; σ {cell['sigma']:g}"
