"""Run under torchrun: a short run with a cross-fitted surrogate; every rank saves what it remembers."""

import sys
from pathlib import Path

from safetensors.torch import save_file

from attention_cem.training.building import resolve_device
from attention_cem.training.distributed import joined_world
from attention_cem.training.interruption import stop_requests
from attention_cem.training.run_folder import RunFolder
from attention_cem.training.trainer import Trainer
from tests.training.helpers import tiny_config, with_surrogate


def main() -> None:
    folder = Path(sys.argv[1])
    config = tiny_config(folder / "run", **with_surrogate("slot_mixture"))
    with joined_world("cpu") as world, stop_requests() as stop:
        run = RunFolder(folder / "run")
        if world.is_main:
            run.prepare(config)
        world.wait()
        trainer = Trainer(config, run, resolve_device("cpu"), world)
        trainer.run(stop)
        if trainer.surrogate is None:
            raise ValueError("the run has no surrogate")
        state = {name: value.contiguous() for name, value in trainer.surrogate.state_dict().items()}
        save_file(state, str(folder / f"surrogate-{world.rank}.safetensors"))


if __name__ == "__main__":
    main()
