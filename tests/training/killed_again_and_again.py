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

import torch._dynamo  # the first optimiser step would import it in every restart

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


def main() -> None:
    folder, request = Path(sys.argv[1]), json.loads(sys.argv[2])
    overrides, moments = request["overrides"], random.Random(request["seed"])
    build_split_model("tiny_cnn", 4, (3, 16, 16))  # imports what tracing needs
    began = time.monotonic()
    _, status = os.waitpid(start(folder / "whole", overrides), 0)
    if status:
        sys.exit("the undisturbed run failed")
    duration = time.monotonic() - began
    kills, steps = 0, []
    while True:
        process = start(folder / "killed", overrides)
        if kills < request["kills"]:
            time.sleep(moments.uniform(0.04, 0.13) * duration)
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if status == 0:
            break
        if not os.WIFSIGNALED(status):
            sys.exit("a resumed run failed")
        kills += 1
        newest = [path.stem for path in step_checkpoints(folder / "killed" / "checkpoints")[-1:]]
        steps.append(newest[0] if newest else "none")
    print(json.dumps({"kills": kills, "steps_at_kill": steps, "seconds": duration}))


if __name__ == "__main__":
    main()
