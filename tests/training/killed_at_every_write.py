"""Trains a run that is killed before the first, second, third ... change it makes to its folder, and resumes each.

Every training is a forked process; see `killed_again_and_again`. Prints, for each kill, what lay on the disk.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from attention_cem.splitting import build_split_model
from attention_cem.training import train
from attention_cem.training.checkpoint import read_checkpoint, step_checkpoints
from tests.training.helpers import tiny_config

CHANGES = ("replace", "link", "unlink")


def kill_before_change(number: int) -> None:
    """Let this process die as by kill -9 when it is about to rename, link or delete for the ``number``-th time."""
    done = 0

    def dying(change: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)

        return counted

    for name in CHANGES:
        setattr(os, name, dying(getattr(os, name)))


def run(folder: Path, overrides: dict[str, Any], kill_at: int | None = None) -> int:
    process = os.fork()
    if process == 0:
        code = 1
        try:
            if kill_at is not None:
                kill_before_change(kill_at)
            train(tiny_config(folder, run__resume=True, **overrides))
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(process, 0)[1]


def on_the_disk(folder: Path) -> dict[str, Any]:
    """Facts of what a resume and `load_run` would find; reading verifies the checksums."""
    steps = [read_checkpoint(path).facts for path in step_checkpoints(folder / "checkpoints")]
    best = folder / "checkpoints" / "best.safetensors"
    return {
        "steps": [facts["steps"] for facts in steps],
        "best_of_newest": steps[-1]["best_epoch"] if steps else 0,
        "best": read_checkpoint(best).facts["best_epoch"] if best.exists() else 0,
        "finished": (folder / "run.json").exists(),
    }


def main() -> None:
    folder, overrides = Path(sys.argv[1]), json.loads(sys.argv[2])
    # Imports what tracing and optimisers need, which takes longer than the training of a child.
    torch.optim.SGD(build_split_model("tiny_cnn", 4, (3, 16, 16)).parameters())
    if run(folder / "whole", overrides):
        sys.exit("the undisturbed run failed")
    found: list[dict[str, Any]] = []
    while True:
        killed = folder / f"killed-{len(found) + 1}"
        status = run(killed, overrides, kill_at=len(found) + 1)
        if status == 0:
            break
        if not os.WIFSIGNALED(status):
            sys.exit("a run failed instead of being killed")
        found.append(on_the_disk(killed))
        if run(killed, overrides):
            sys.exit(f"the run killed before change {len(found)} could not be resumed")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
