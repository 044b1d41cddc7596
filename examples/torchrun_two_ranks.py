"""Two processes that train as one: every rank sees its half of the batch, the surrogate sees the joined batch.

Run:    torchrun --standalone --nproc-per-node 2 examples/torchrun_two_ranks.py
Needs:  pip install -e .
Works with any number of ranks, on CPUs (gloo) or one GPU a rank (nccl); without torchrun it is one process.
"""

import os
import tempfile
from pathlib import Path

import torch

from attention_cem.training import load_config, train

SETTINGS = {
    "data.name": "synthetic",
    "data.options": {"size": 16, "num_classes": 5, "num_train": 500, "num_test": 500},
    "data.flip": False,
    "data.crop_padding": 0,
    "data.validation_fraction": 0.2,
    "model.name": "tiny_cnn",
    "defence": {"gaussian_noise": {"sigma": 0.1}},
    "surrogate.name": "slot_mixture",
    "surrogate.lambd": 0.3,
    "surrogate.attention_warmup_epochs": 2,
    "surrogate.arguments": {"num_slots": 3, "bank_size": 32},
    "train.epochs": 6,
    "train.batch_size": 50,  # over all ranks together: 25 images each
    "train.optimiser": "adamw",
    "train.lr": 0.003,
    "run.device": "cpu",
    "run.tensorboard": False,
    "run.figures": False,
}


def shared_folder() -> Path:
    """A fresh folder whose name all ranks know without asking each other."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", str(os.getpid()))
    return Path(tempfile.gettempdir()) / f"attention-cem-torchrun-{run}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    config = load_config(overrides={**SETTINGS, "run.folder": str(shared_folder())})
    result = train(config)  # joins the ranks torchrun started; rank 0 writes the files
    if os.environ.get("RANK", "0") == "0":
        for row in result.metrics:
            figures = f"nats {row['rob_loss'] or 0:.3f}   spread {row['intra_mse']:.4f}"
            print(f"epoch {row['epoch']}   validation accuracy {row['accuracy']:.1%}   {figures}   λ {row['lambd']}")
        print(f"processes: {result.facts['hardware']['processes']}   test accuracy {result.test_accuracy:.1%}")
        print(f"attack it: attention-cem audit {result.folder} --budget quick")
