"""Run under torchrun: the gradients of one step, and all states after it, for every surrogate and penalty."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from attention_cem.training.distributed import joined_world
from tests.training.one_step import NAMES, one_step


def main() -> None:
    with joined_world("cpu") as world:
        for name in NAMES:
            result = one_step(name, world)
            save_file(contiguous(result), str(Path(sys.argv[1]) / f"{name}-{world.rank}.safetensors"))
        flags = {"one": world.all(torch.tensor(world.rank == 0)), "both": world.all(torch.tensor(True))}
        save_file(contiguous(flags), str(Path(sys.argv[1]) / f"flags-{world.rank}.safetensors"))


def contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.detach().clone(memory_format=torch.contiguous_format) for key, value in tensors.items()}


if __name__ == "__main__":
    main()
