import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_cem.training import ConfigError, load_config
from attention_cem.training.config_reading import config_from_dict, config_hash, config_to_dict, setting_names
from attention_cem.training.toml_writing import to_toml

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_presets__every_file_reads_and_survives_being_written(path: Path) -> None:
    config = load_config(path)
    again = config_from_dict(tomllib.loads(to_toml(config_to_dict(config))))
    assert again == config and config_hash(again) == config_hash(config)
    assert config.data.name in path.stem


def test_presets__one_of_each_kind_for_every_data_set() -> None:
    sets = ("synthetic", "cifar10", "cifar100", "orl", "lfw158", "tinyimagenet20")
    expected = {f"{name}-{preset}" for name in sets for preset in ("seed", "sound", "paper")}
    assert expected <= {path.stem for path in CONFIGS}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train.epoch": 2}, "unknown setting 'train.epoch'; did you mean 'train.epochs'?"),
        ({"trian.epochs": 2}, "did you mean 'train.epochs'?"),
        ({"train.epochs": "two"}, "train.epochs must be a whole number, got 'two'"),
        ({"train.epochs": 2.5}, "train.epochs must be a whole number, got 2.5"),
        ({"train.epochs": True}, "train.epochs must be a whole number, got True"),
        ({"train.lr": "fast"}, "train.lr must be a number, got 'fast'"),
        ({"train.lr": -1.0}, "train.lr must be a finite number above 0, got -1.0"),
        ({"train.lr": float("nan")}, "train.lr must be a finite number"),
        ({"data.flip": "yes"}, "data.flip must be true or false, got 'yes'"),
        ({"train.schedule": "cosin"}, "did you mean 'cosine'?"),
        ({"train.milestones": [60, 20]}, "train.milestones must be rising"),
        ({"data.classes_per_batch": 3}, "batch_size 128 must be a multiple of data.classes_per_batch 3"),
        ({"data.classes_per_batch": 0}, "data.classes_per_batch must be 1 or more, or null for any classes, got 0"),
        ({"surrogate.lambd": 1.0}, "surrogate.name is 'none'"),
        ({"train.nesterov": True, "train.optimiser": "adamw"}, "train.nesterov needs"),
        ({"run.device": "cpu", "train.precision": "bf16"}, "needs a CUDA device"),
        ({"run.device": "cpu", "train.cuda_graph": "on"}, "needs a CUDA device"),
        ({"data.validation_fraction": 1.0}, "strictly between 0 and 1"),
        ({"train.schedule": "one_cycle", "train.lr_warmup_epochs": 2}, "has its own rise"),
        ({"defence.gaussian_noise.name": "x"}, "defence.gaussian_noise.name is not a parameter"),
        ({"defence.gaussian_noise": 0.1}, "defence.gaussian_noise must be a table"),
        ({"surrogate.arguments.": 1}, "empty part"),
    ],
)
def test_load_config__refuses_in_one_line(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=overrides)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_load_config__text_in_a_file_is_not_taken_for_a_number(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[train]\nepochs = "2"\n')
    with pytest.raises(ConfigError, match="whole number, got '2'"):
        load_config(path)
    path.write_text("[train]\nlr = 1\n")
    assert load_config(path).train.lr == 1.0


def test_load_config__files_that_are_missing_or_not_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "absent.toml")
    path = tmp_path / "config.toml"
    path.write_text("[train\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(path)


def test_load_config__overrides_reach_free_tables_and_none_removes() -> None:
    overrides = {"surrogate.name": "gated", "surrogate.arguments.form": "trace", "surrogate.arguments.hidden": "8"}
    config = load_config(overrides={**overrides, "defence.gaussian_noise.sigma": ".5", "data.limit": "none"})
    assert config.surrogate.arguments == {"form": "trace", "hidden": 8}
    assert config.defence == {"gaussian_noise": {"sigma": 0.5}} and config.data.limit is None
    path = next(path for path in CONFIGS if path.stem == "cifar10-paper")
    assert load_config(path, {"defence.gaussian_noise": None}).defence == {}


def test_config_hash__ignores_where_a_run_lives_and_nothing_else() -> None:
    base = config_hash(load_config())
    for name, setting in setting_names().items():
        value = {int: 7, float: 0.125, bool: None, str: "text"}.get(setting.metadata["type"])
        if value is None or name in ("data.crop_padding", "surrogate.lambd", "data.rotation_degrees"):
            continue
        changed = config_hash(config_from_dict(_nested(name, value)))
        moved = name.startswith("run.") or name in ("data.root", "data.on_device")
        assert (changed == base) is moved, name


def _nested(name: str, value: Any) -> dict[str, Any]:
    *sections, last = name.split(".")
    tree: dict[str, Any] = {last: value}
    for section in reversed(sections):
        tree = {section: tree}
    return tree


plain = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(max_size=20))
trees = st.recursive(
    st.dictionaries(st.text(max_size=8), st.one_of(plain, st.lists(plain, max_size=3)), max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=8), st.one_of(plain, inner), max_size=4),
    max_leaves=12,
)


@given(trees)
def test_to_toml__is_read_back_as_it_was(tree: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(tree)) == tree


def test_config__does_not_import_torch() -> None:
    code = (
        "import sys, attention_cem.training.config_reading, attention_cem.cli.train; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
