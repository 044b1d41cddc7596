"""A cell that imports torch as soon as a worker begins, as a program that imports it itself would."""

from typing import Any

import torch

from attention_cem.studies.cell_run import CellPlace
from attention_cem.studies.plan import Cell
from tests.studies.stub import result


def telling_its_threads(cell: Cell, place: CellPlace) -> dict[str, Any]:
    return {**result(cell), "versions": {"threads": torch.get_num_threads()}}
