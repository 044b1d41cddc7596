"""``python -m docs.figures [NAME ...]``: draw the handbook's figures again, all or the named ones."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

import torch

FIGURES = (
    "leak",
    "clouds",
    "waves",
    "flow",
    "captains",
    "assignment",
    "gates",
    "roll_call",
    "talk_down",
    "scale",
    "few_samples",
    "curves",
    "hiding",
    "worked_example",
    "defects",
)


def main() -> int:
    """Draw, and say how long each took."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(FIGURES)} [all]")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write [docs/assets/understand]")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(FIGURES))
    if unknown:
        parser.error(f"there is no figure {unknown[0]!r}; there are: {', '.join(FIGURES)}")
    torch.set_num_threads(1)  # sums in one order: the same numbers every time
    for name in given.names or FIGURES:
        start = time.perf_counter()
        draw = importlib.import_module(f"docs.figures.{name}").draw
        files = draw(given.out) if given.out else draw()
        print(f"{time.perf_counter() - start:5.1f} s  {', '.join(file.name for file in files)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
