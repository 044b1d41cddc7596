"""What an inverter that also trains on cropped and mirrored images finds, beside one that does not: same clients.

python -m benchmarks.augmented --data-root FOLDER            # the finalists, 3 seeds; made for a GPU
python -m benchmarks.augmented --data-root FOLDER --cell ID  # one of them, to run several at a time

Every run is kept in ``runs/augmented``; the same command goes on with those that are missing, and with all of them
there writes ``results/benchmarks/augmented.json``.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from attention_cem.attacks import Challenge, InverterAttack, TrainingPlan
from attention_cem.attacks.sealed_folder import write_json_atomically
from attention_cem.auditing import score
from attention_cem.auditing.challenge_files import Answers
from attention_cem.auditing.run_adapter import challenge_from_run
from attention_cem.studies import load_study
from attention_cem.studies.cell_run import images_of
from attention_cem.studies.plan import Cell
from attention_cem.studies.results import program_commit
from attention_cem.training.run import train
from benchmarks.timing import machine

STUDY = "finalists-mirrored-cifar10"
OURS, THEIRS = "sound_attention_mirrored", "kmeans_constant_mirrored"
STRENGTHS = {OURS: 0.5, THEIRS: 5.0}
"""Weight of ours and λ of k-means CEM at which both are about as accurate."""
EPOCHS = 50
"""Of the inverters, before the probe."""
OUT = Path("results/benchmarks/augmented.json")
_KEPT = Path("runs/augmented")


def strength(cell: Cell) -> float:
    """The weight of the closed-form attacker, or λ."""
    return float(cell.config.defence.get("linear_leakage", {}).get("weight", cell.lambd))


def chosen() -> list[Cell]:
    """The runs that are compared."""
    study = load_study(f"studies/{STUDY}.toml")
    return [cell for cell in study.cells if strength(cell) == STRENGTHS.get(cell.method)]


def measured(cell: Cell, data_root: str, device: torch.device) -> dict[str, Any]:
    """Train the client, then attack it by the reference inverter without and with augmented images."""
    folder = _KEPT / cell.id
    config = replace(
        cell.config,
        data=replace(cell.config.data, root=data_root),
        run=replace(cell.config.run, folder=str(folder), resume=True, device=str(device)),
        train=replace(cell.config.train, compile=False),  # the attacks are: they take longer
    )
    data = images_of(config)
    trained = train(config, data=data)
    shutil.rmtree(_KEPT / f"{cell.id}.challenge", ignore_errors=True)
    challenge = Challenge(challenge_from_run(folder, _KEPT / f"{cell.id}.challenge", device=device, data=data))
    images = Answers(challenge.folder, str(challenge.manifest["answers_sha256"])).images()
    attacks = {}
    for name, augment in (("plain", False), ("augmented", True)):
        attack = InverterAttack(TrainingPlan(epochs=EPOCHS), augment=augment, compile=True)
        result = attack.run(challenge, device=device, seed=config.train.seed)
        receipt = result.receipt
        attacks[name] = {
            "mse": float(score(result.reconstructions, images, device).mse.double().mean()),
            "validation_mse": receipt.validation_mse,
            "train_mse": receipt.train_mse,
            "converged": receipt.converged,
            "reason": receipt.reason,
            "seconds": receipt.seconds,
        }
        print(f"{cell.id}: accuracy {trained.test_accuracy:.2%}, {name} {attacks[name]['mse']:.5f}", flush=True)
    shutil.rmtree(challenge.folder)
    facts = {"cell": cell.id, "method": cell.method, "seed": config.train.seed, "strength": strength(cell)}
    return {
        **facts,
        "accuracy": trained.test_accuracy,
        "attacks": attacks,
        "commit": program_commit(),
        "machine": machine(),
    }


def kept(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """Runs that are there."""
    for cell in cells:
        file = _KEPT / f"{cell.id}.json"
        if file.is_file():
            yield json.loads(file.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True, metavar="FOLDER")
    parser.add_argument("--cell", action="append", default=[], metavar="ID", help="only this run; may be repeated")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    cells = chosen()
    wanted = [cell for cell in cells if not asked.cell or cell.id in asked.cell]
    if unknown := sorted(set(asked.cell) - {cell.id for cell in cells}):
        parser.error(f"no such run: {', '.join(unknown)}; there are {', '.join(cell.id for cell in cells)}")
    _KEPT.mkdir(parents=True, exist_ok=True)
    for cell in wanted:
        if not (_KEPT / f"{cell.id}.json").is_file():
            found = measured(cell, asked.data_root, torch.device(asked.device))
            write_json_atomically(_KEPT / f"{cell.id}.json", found)
    runs = list(kept(cells))
    for run in runs:
        plain, augmented = (run["attacks"][name]["mse"] for name in ("plain", "augmented"))
        told = f"{run['accuracy']:.2%}, MSE {plain:.5f}, with augmented images {augmented:.5f}"
        print(f"{run['method']} seed {run['seed']}: {told} ({augmented / plain - 1:+.1%})")
    if len(runs) == len(cells):
        OUT.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomically(OUT, {"study": STUDY, "runs": runs})
        print(f"written to {OUT}")


if __name__ == "__main__":
    main()
