"""Images as attacks rebuilt them: kept of a run, shown beside its figures."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from studies.publish import publish
from studies.publish_pictures import keep_strip, strip_file, wants_strip
from studies.publish_settings import Picture, read_settings
from studies.reproduce import store_strips

from attention_cem.studies import load_study
from attention_cem.studies.cell_run import images_of
from attention_cem.studies.results import write_result
from tests.studies.publishing import MAIN, fill, page, repository, result

SYNTHETIC = """
name = "main-cifar10"
[settings]
"data.name" = "synthetic"
"data.options" = { num_train = 40, num_test = 20, size = 16 }
"model.name" = "tiny_cnn"
[matrix]
seed = [0, 1]
[[method]]
name = "noise"
settings = { "surrogate.name" = "none" }
"""


def asking(root: Path, **asked: object) -> Path:
    """The repository with one picture asked for instead of its own."""
    settings = root / "results" / "comparisons.toml"
    text = settings.read_text()
    before, after = text[: text.index("[[picture]]")], text[text.index("[[picture]]") :]
    entry = {
        "study": "main-cifar10",
        "seed": 1,
        "comparison": "sound_vs_kmeans_best",
        "methods": {"noise": "noise alone"},
        **asked,
    }
    methods = entry.pop("methods")
    wanted = "[[picture]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in entry.items())
    assert isinstance(methods, dict)
    wanted += "\n[picture.methods]\n" + "\n".join(f"{name} = {json.dumps(words)}" for name, words in methods.items())
    settings.write_text(f"{before}{wanted}\n\n{after[after.index('# What the names') :]}")
    return root


def strip(root: Path, study: str, cell: str) -> None:
    file = strip_file(root, study, cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (3 * 8, 2 * 8), "red").save(file)


def test_strip__is_kept_with_the_result_and_holds_true_images_above_rebuilt_ones(tmp_path: Path) -> None:
    root = asking(repository(tmp_path, SYNTHETIC))
    study = load_study(root / "studies/main-cifar10.toml", tmp_path / "runs")
    for cell in study.cells:
        write_result(study.result_file(cell.id), result(study.name, cell, 0.8, 0.02))
        true = images_of(cell.config).test.images[:5]
        samples = study.run_folder(cell) / "audit/attacks/inverter.safetensors"
        samples.parent.mkdir(parents=True)
        save_file({"samples": 255 - true}, samples)
    store_strips(root, study, study.cells)
    kept = [cell for cell in study.cells if strip_file(root, study.name, cell.id).is_file()]
    assert [cell.config.train.seed for cell in kept] == [1], "of no other seed"
    true = images_of(kept[0].config).test.images[:5]
    with Image.open(strip_file(root, study.name, kept[0].id)) as image:
        assert image.size == (5 * 16, 2 * 16)
        second = torch.from_numpy(np.array(image))[:, 16:32].permute(2, 0, 1)
    assert torch.equal(second[:, :16], true[1]) and torch.equal(second[:, 16:], 255 - true[1])


def test_strip__of_a_run_whose_attacks_are_gone_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    root = repository(tmp_path, SYNTHETIC)
    study = load_study(root / "studies/main-cifar10.toml", tmp_path / "runs")
    with pytest.raises(FileNotFoundError, match=r"inverter\.safetensors"):
        keep_strip(root, study, study.cells[0], {"attack": "inverter"}, None)


def test_picture__shows_of_every_method_the_run_nearest_to_the_comparison(tmp_path: Path) -> None:
    root = asking(repository(tmp_path, MAIN), methods={"noise": "noise alone", "sound": "ours"})
    fill(root, "main-cifar10")
    study = load_study(root / "studies/main-cifar10.toml")
    settings = read_settings(root)
    assert settings.pictures == (
        Picture("main-cifar10", 1, "sound_vs_kmeans_best", {"noise": "noise alone", "sound": "ours"}),
    )
    cells = [cell for cell in study.cells if wants_strip(settings, study.name, cell)]
    assert len(cells) == 6
    for cell in cells:
        strip(root, study.name, cell.id)
    publish(root)
    drawn = root / "results/figures/rebuilt-main-cifar10.png"
    with Image.open(drawn) as image:
        assert image.width > 3 * 64 and image.height >= 3 * 64  # true images and two methods, enlarged
    front = (root / "README.md").read_text()
    assert "](results/figures/rebuilt-main-cifar10.png)" in front
    assert "`main-cifar10` (vgg11_bn, all images, 60 epochs): the first test images" in front
    assert "](figures/rebuilt-main-cifar10.png)" in page(root, "main")
    before = drawn.read_bytes()
    publish(root)
    assert drawn.read_bytes() == before


def test_picture__is_left_out_where_a_method_has_no_strip(tmp_path: Path) -> None:
    root = asking(repository(tmp_path, MAIN), methods={"noise": "noise alone", "sound": "ours"})
    fill(root, "main-cifar10")
    study = load_study(root / "studies/main-cifar10.toml")
    strip(root, study.name, next(cell.id for cell in study.cells if cell.method == "noise"))
    publish(root)
    assert not (root / "results/figures/rebuilt-main-cifar10.png").exists()
    assert "rebuilt" not in (root / "README.md").read_text().replace("rebuilt unseen", "")
