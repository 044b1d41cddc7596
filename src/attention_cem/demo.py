"""``make demo``: ORL faces through an undefended and a defended split model, both attacked, one page to look at.

Everything lives in one folder (``demo/``). A second call reuses what is finished and continues what is not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_cem.cli.remedies import os_words
from attention_cem.freed_memory import keep_freed_memory
from attention_cem.standard_streams import prepare_streams
from attention_cem.training.config import Config, DataConfig, ModelConfig, RunConfig, SurrogateConfig, TrainConfig

if TYPE_CHECKING:
    from attention_cem.auditing import Budget
    from attention_cem.demo_progress import Stages

UNDEFENDED, DEFENDED = "undefended", "defended"
_STORY = """\
A face is encoded on the device (the client); only the code z leaves it; a server names the person.
An attacker who sees z, knows the model and owns 8 other photos of every person tries to rebuild the photo.
"""
_REMAINS = """\
This is a demonstration, not evidence: one seed, and its noise and λ were chosen while looking at these test photos.

What remains with the defence: the server still has to know who it is, so an attacker who already owns photos of that
person can answer with their average face. Pose, expression and detail of the photo that was sent are what is hidden.
"""
_SHORT = """\
The trained attack was kept short, and its receipt says under-trained: with more time it finds somewhat more. For the
worst case of a model of your own, run a standard or thorough audit.
"""


@dataclass(frozen=True)
class DemoPlan:
    """What the demonstration trains and attacks.

    Args:
        data: name of the data set.
        epochs: of each split model.
        batch_size: images in a batch; ``classes_per_batch`` people, the same number of images each.
        classes_per_batch: see above.
        limit: keep at most so many images; None for all.
        sigma: noise of the defended model.
        lambd: weight of the defended model's surrogate.
        attack_epochs: of the trained inverter; half as many again to see whether it has converged.
        attack_width: channels of the inverter. attack_blocks: its residual blocks.
    """

    data: str = "orl"
    epochs: int = 20
    batch_size: int = 32
    classes_per_batch: int = 16
    limit: int | None = None
    sigma: float = 0.1
    lambd: float = 3.0
    attack_epochs: int = 16
    attack_width: int = 32
    attack_blocks: int = 2


def demo_config(plan: DemoPlan, folder: Path, *, defended: bool) -> Config:
    """The run of one of the two models; they differ in the noise and the surrogate alone.

    >>> config = demo_config(DemoPlan(), Path("demo"), defended=True)
    >>> config.surrogate.name, config.defence
    ('slot_mixture', {'gaussian_noise': {'sigma': 0.1}})
    """
    surrogate = SurrogateConfig(
        name="slot_mixture",
        lambd=plan.lambd,
        attention_warmup_epochs=2,
        # One slot a person: a handful of photos has one mode. The bank holds fewer than a person's photos, so that
        # none is measured against itself.
        arguments={"num_slots": 1, "bank_size": 6},
    )
    return Config(
        data=DataConfig(name=plan.data, limit=plan.limit, classes_per_batch=plan.classes_per_batch, flip=False),
        model=ModelConfig(name="tiny_cnn"),
        defence={"gaussian_noise": {"sigma": plan.sigma}} if defended else {},
        surrogate=surrogate if defended else SurrogateConfig(),
        train=TrainConfig(
            epochs=plan.epochs,
            batch_size=plan.batch_size,
            optimiser="adamw",
            lr=3e-3,
            weight_decay=0.02,
            schedule="one_cycle",
        ),
        run=RunConfig(
            folder=str(folder / (DEFENDED if defended else UNDEFENDED)),
            resume=True,
            device="cpu",
            checkpoint_epochs=4,
            tensorboard=False,
            figures=False,
        ),
    )


def demo_budget(plan: DemoPlan) -> Budget:
    """The two untrained baselines and one trained inverter that knows the defence."""
    from attention_cem.attacks import ClassMeanAttack, InverterAttack, NearestNeighbourAttack, TrainingPlan
    from attention_cem.auditing import Budget

    inverter = InverterAttack(
        TrainingPlan(epochs=plan.attack_epochs), width=plan.attack_width, blocks=plan.attack_blocks
    )
    attacks = (
        ("class_mean", ClassMeanAttack()),
        ("nearest_neighbour", NearestNeighbourAttack()),
        ("inverter", inverter),
    )
    return Budget("demo", attacks, fisher_images=8)


def run_demo(folder: Path, plan: DemoPlan, stages: Stages) -> list[dict[str, Any]]:
    """Train, attack, write ``report.html``; the two audits, undefended first.

    Each model is attacked with the weights of its last epoch: no checkpoint is chosen, so none can be chosen from
    before the surrogate was active.
    """
    from attention_cem.auditing import audit, write_challenge
    from attention_cem.data import load_data
    from attention_cem.reporting import write_report
    from attention_cem.training import load_run, train

    folder.mkdir(parents=True, exist_ok=True)
    records = []
    configs = [demo_config(plan, folder, defended=defended) for defended in (False, True)]
    for config, name in zip(configs, (UNDEFENDED, DEFENDED), strict=True):
        with stages.training(name, plan.epochs) as watcher:
            result = train(config, observer=watcher)
        if not (result.folder / "challenge").is_dir():
            images = load_data(plan.data, limit=plan.limit)
            run = load_run(result.folder, "last")
            write_challenge(
                result.folder / "challenge",
                client=run.model.client,
                server=run.model.server,
                stack=run.stack,
                attacker=images.train,
                test=images.test,
                about={"run": name, "data": plan.data, "weights": "last epoch"},
            )
        with stages.attack(name) as observer:
            record = audit(
                result.folder / "challenge",
                result.folder,
                budget=demo_budget(plan),
                device="cpu",
                calibration_cache=folder / "calibration",
                observer=observer,
            )
        records.append(record)
    write_report([Path(str(config.run.folder)) for config in configs], folder / "report.html")
    return records


def result_table(records: Sequence[dict[str, Any]]) -> str:
    """What each attack gets, as text; every figure is the audit's.

    >>> entry = {"name": "inverter", "mse": 0.01, "psnr": 20.0, "ssim": 0.5, "status": "passed"}
    >>> print(result_table([{"accuracy": 0.9, "attacks": [entry], "floor_mse": 0.03}] * 2))
                                      undefended          defended
    accuracy                              90.0 %            90.0 %
    attack: inverter              20.0 dB   0.50    20.0 dB   0.50
    (attacks: PSNR in dB and SSIM of the rebuilt test photos; higher is a better picture)
    """
    head = f"{'':<26}{UNDEFENDED:>18}{DEFENDED:>18}"
    shares = "".join(f"{100 * record['accuracy']:>16.1f} %" for record in records)
    lines = [head, f"{'accuracy':<26}{shares}"]
    for row in zip(*(record["attacks"] for record in records), strict=True):
        ssim = [f"{entry['ssim']:.2f}" if entry["ssim"] is not None else "-" for entry in row]
        cells = "".join(f"{entry['psnr']:>8.1f} dB{text:>7}" for entry, text in zip(row, ssim, strict=True))
        lines.append(f"{'attack: ' + row[0]['name']:<26}{cells}")
    lines.append("(attacks: PSNR in dB and SSIM of the rebuilt test photos; higher is a better picture)")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, plan: DemoPlan | None = None) -> int:
    """Run the demonstration; the return value is the exit code (130 after Ctrl-C, 2 for a wrong request)."""
    prepare_streams()
    parser = argparse.ArgumentParser(prog="python -m attention_cem.demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where everything goes [demo]")
    folder: Path = parser.parse_args(arguments).folder
    began = time.perf_counter()
    keep_freed_memory()
    print(_STORY, flush=True)
    try:
        # Loading torch takes seconds: inside, so that Ctrl-C is answered then as well.
        from attention_cem.demo_progress import shown_stages

        with shown_stages() as stages:
            records = run_demo(folder, plan or DemoPlan(), stages)
    except KeyboardInterrupt:
        print(f"\nstopped; the same command continues from {folder}", file=sys.stderr)
        return 130
    except (ValueError, FileNotFoundError) as error:
        print(f"demo: {error}\nTo start afresh, delete the folder {folder} or choose another.", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"demo: {os_words(error)}", file=sys.stderr)
        return 1
    print(result_table(records))
    if any(entry["status"] != "passed" for record in records for entry in record["attacks"]):
        print(f"\n{_SHORT}", end="")
    print(f"\n{_REMAINS}\ntook {time.perf_counter() - began:.0f} s")
    print(f"Now open {folder / 'report.html'} in a browser and move the slider over the faces.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
