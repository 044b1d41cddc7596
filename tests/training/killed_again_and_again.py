"""Trains one run undisturbed and the same run under kill -9 at random moments, each in a forked process.

Forking from a process that has imported torch but computed nothing spares the imports of every restart.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from attention_cem.splitting import build_split_model
from attention_cem.training import train
from attention_cem.training.checkpoint import step_checkpoints
from tests.training.helpers import tiny_config


def start(folder: Path, overrides: dict[str, Any]) -> int:
    process = os.fork()
    if process == 0:
        code = 1
        try:
            train(tiny_config(folder, run__resume=True, **overrides))
            code = 0
        finally:
            os._exit(code)
    return process


def steps_done(folder: Path) -> int:
    newest = step_checkpoints(folder / "checkpoints")[-1:]
    return int(newest[0].stem.removeprefix("step-")) if newest else 0


def wait_for_a_random_moment(folder: Path, moments: random.Random) -> None:
    """Some time in the start of a process, or shortly after it has written some checkpoints."""
    if moments.random() < 0.2:
        time.sleep(moments.uniform(0.0, 0.3))
        return
    target = steps_done(folder) + moments.randint(1, 3)
    while steps_done(folder) < target:
        time.sleep(0.002)
    time.sleep(moments.uniform(0.0, 0.1))


def main() -> None:
    folder, request = Path(sys.argv[1]), json.loads(sys.argv[2])
    overrides, moments = request["overrides"], random.Random(request["seed"])
    # Imports what tracing and optimisers need, which takes longer than the training of a child.
    torch.optim.SGD(build_split_model("tiny_cnn", 4, (3, 16, 16)).parameters())
    _, status = os.waitpid(start(folder / "whole", overrides), 0)
    if status:
        sys.exit("the undisturbed run failed")
    steps_at_kill: list[int] = []
    while True:
        process = start(folder / "killed", overrides)
        if len(steps_at_kill) < request["kills"]:
            wait_for_a_random_moment(folder / "killed", moments)
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if status == 0:
            break
        if not os.WIFSIGNALED(status):
            sys.exit("a resumed run failed")
        steps_at_kill.append(steps_done(folder / "killed"))
    print(json.dumps({"kills": len(steps_at_kill), "steps_at_kill": steps_at_kill}))


if __name__ == "__main__":
    main()
