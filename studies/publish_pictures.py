"""Images as the worst attack of an audit rebuilt them, method by method: what a figure of MSE looks like.

A strip is kept of a run when its result is stored: the first test images above, what was made of them below.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_cem.studies.plan import Cell, Study
from attention_cem.training.files import write_atomically
from studies.publish_comparisons import Compared
from studies.publish_figures import FOLDER
from studies.publish_finished import Finished
from studies.publish_reading import Experiment
from studies.publish_settings import Picture, Settings
from studies.publish_stamps import PICTURES

if TYPE_CHECKING:
    from torch import Tensor


COLUMNS = 9  # as many as leave the words beside them legible on a page


def strip_file(root: Path, study: str, cell: str) -> Path:
    """Where a run's strip is kept."""
    return root / PICTURES / study / f"{cell}.png"


def wants_strip(settings: Settings, study: str, cell: Cell) -> bool:
    """Whether a picture is asked for that may show this run."""
    return any(
        (asked.study, asked.seed) == (study, cell.config.train.seed) and cell.method in asked.methods
        for asked in settings.pictures
    )


def keep_strip(root: Path, study: Study, cell: Cell, result: Mapping[str, Any], data_root: str | None) -> None:
    """Keep the first test images and what the worst attack of the run made of them."""
    import dataclasses

    import torch
    from PIL import Image
    from safetensors import safe_open

    from attention_cem.studies.cell_run import images_of

    found = study.run_folder(cell) / "audit" / "attacks" / f"{result['attack']}.safetensors"
    with safe_open(found, framework="pt") as stored:
        rebuilt = stored.get_tensor("samples")
    data = dataclasses.replace(cell.config.data, root=data_root or cell.config.data.root)
    true = images_of(dataclasses.replace(cell.config, data=data)).test.images[: len(rebuilt)]
    rows = torch.stack([true, rebuilt])  # (2, n, C, H, W)
    strip = rows.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)  # (2H, nW, C)
    written = io.BytesIO()
    Image.fromarray(strip.expand(-1, -1, 3).numpy()).save(written, "PNG")
    target = strip_file(root, study.name, cell.id)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, written.getvalue())


def picture_name(study: str) -> str:
    """Where the picture of a study is, relative to the root."""
    return f"{FOLDER}/rebuilt-{study}.png"


def shown_runs(root: Path, asked: Picture, experiment: Experiment, compared: Compared) -> list[Finished]:
    """Of every method the run nearest to the accuracy at which the comparison was read; empty where one is missing."""
    records = (of_data.get(asked.comparison) for of_data in compared.records.values())
    record = next((each for each in records if each is not None), None)
    if record is None:
        return []
    runs = []
    for method in asked.methods:
        having = [
            each
            for each in experiment.finished
            if (each.method, each.seed) == (method, asked.seed) and strip_file(root, each.study, each.cell.id).is_file()
        ]
        if not having:
            return []
        runs.append(min(having, key=lambda each: abs(each.result["accuracy"] - record["accuracy"])))
    return runs


def write_picture(root: Path, asked: Picture, experiment: Experiment, compared: Compared) -> str | None:
    """Draw the rows one above the other, figures beside them; its name, or None where runs are missing."""
    from attention_cem.auditing.grids import write_grid

    runs = shown_runs(root, asked, experiment, compared)
    if not runs:
        return None
    strips = [_strip(strip_file(root, each.study, each.cell.id)) for each in runs]
    labels = [
        f"{asked.methods[each.method]}: {100 * each.result['accuracy']:.1f} % right, MSE {each.result['mse']:.4f}, "
        f"SSIM {each.result['ssim']:.2f}"
        for each in runs
    ]
    name = picture_name(experiment.name)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    rows = [strips[0][0], *(rebuilt for _, rebuilt in strips)]
    write_grid(root / name, [row[:COLUMNS] for row in rows], ["true images", *labels])
    return name


SHOWN = (
    "the first test images, and what the worst attack of an audit rebuilt of them, method by method: of each the run "
    "nearest to the accuracy at which they are compared.",
    "最前面的几张测试图像，以及对每种方法的最强攻击还原出的图像；每种方法取准确率最接近比较点的那次运行。",
)
ALTERNATIVE = (
    "Test images, and what the worst attack on each method rebuilt",
    "测试图像，以及对每种方法的最强攻击还原出的图像",
)


def picture_words(name: str, *, folder: str = "") -> str:
    """The picture and what it shows, in both languages; ``folder`` is that of the page."""
    told = f"{SHOWN[0][0].upper()}{SHOWN[0][1:]}"
    return f"![{ALTERNATIVE[0]}]({name.removeprefix(folder)})\n\n{told} {SHOWN[1]}"


def front_picture_words(name: str, of: str, *, chinese: bool) -> str:
    """The same in one language; ``of`` names the study, which nothing else does there."""
    return f"![{ALTERNATIVE[chinese]}]({name})\n\n{of}{'：' if chinese else ': '}{SHOWN[chinese]}"


def _strip(file: Path) -> tuple[Tensor, Tensor]:
    """True and rebuilt images of a strip, each ``(n, C, H, W)``."""
    import numpy as np
    import torch
    from PIL import Image

    with Image.open(file) as image:
        pixels = torch.from_numpy(np.array(image.convert("RGB")))
    side = pixels.shape[0] // 2
    rows = pixels.unflatten(0, (2, side)).unflatten(2, (-1, side))  # (2, H, n, W, C)
    true, rebuilt = rows.permute(0, 2, 4, 1, 3)
    return true, rebuilt
