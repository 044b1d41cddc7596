import json
from pathlib import Path
from typing import Any

import pytest

from attention_cem.data import MissingDataError, load_data
from attention_cem.training import ConfigError, folder_lock, train
from attention_cem.training.config_reading import config_hash
from attention_cem.training.files import write_atomically
from attention_cem.training.run_folder import RunFolder, folder_for

from .helpers import tiny_config

ROW = {
    **{"epoch": 0, "loss": None, "balanced_accuracy": 0.5, "surrogate_mode": "off", "nonfinite_steps": 0, "lambd": 0.0},
    **{"rob_loss": None, "shutoff_share": None, "seconds": 1.5, "images_per_s": 100.0},
}


def test_run_folder__keeps_its_configuration(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "run", surrogate__name="gated", surrogate__arguments__form="trace")
    folder = folder_for(config)
    folder.prepare(config)
    assert folder.config() == config and config_hash(folder.config()) == config_hash(config)


def test_run_folder__an_occupied_folder_is_refused_unless_resumed(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "run")
    folder_for(config).prepare(config)
    with pytest.raises(ConfigError, match="already holds a run; continue it with --run.resume true"):
        folder_for(config).prepare(config)
    folder_for(config).prepare(tiny_config(tmp_path / "run", run__resume=True, run__checkpoint_seconds=5.0))


def test_run_folder__a_changed_configuration_is_refused_by_name(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "run")
    folder_for(config).prepare(config)
    changed = tiny_config(tmp_path / "run", run__resume=True, train__lr=0.5, defence__gaussian_noise__sigma=0.1)
    with pytest.raises(ConfigError, match=r"defence.gaussian_noise.sigma: 0.05 → 0.1; train.lr: 0.02 → 0.5"):
        folder_for(changed).prepare(changed)


def test_run_folder__a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    config = tiny_config(tmp_path)
    with pytest.raises(ConfigError, match="holds other files"):
        folder_for(config).prepare(config)


REFUSED: list[dict[str, Any]] = [
    {"defence__gaussian_noise__sigma": -0.1},
    {"surrogate__name": "kmeens"},
    {"model__name": "vgg12"},
    {"model__cut": "nowhere"},
    {"train__batch_size": 1000},
]


@pytest.mark.parametrize("wrong", REFUSED, ids=lambda wrong: next(iter(wrong)))
def test_train__what_was_refused_does_not_occupy_its_folder(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        train(tiny_config(tmp_path / "new" / "run", **wrong))
    assert list(tmp_path.iterdir()) == []


def test_train__missing_data_does_not_occupy_the_folder(tmp_path: Path) -> None:
    absent = {"data__name": "cifar10", "data__root": str(tmp_path / "absent"), "data__options": {}}
    with pytest.raises(MissingDataError):
        train(tiny_config(tmp_path / "run", **absent))
    assert list(tmp_path.iterdir()) == []


def test_train__refused_in_a_folder_that_was_there_leaves_it_as_it_was(tmp_path: Path) -> None:
    refused = tiny_config(tmp_path, defence__gaussian_noise__sigma=-0.1)
    with pytest.raises(ConfigError):
        train(refused)
    assert tmp_path.is_dir() and list(tmp_path.iterdir()) == []
    weights = tmp_path / "checkpoints" / "step-00000001.safetensors"  # of a run whose config.toml was lost
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    (tmp_path / "run.lock").touch()
    with pytest.raises(ConfigError):
        train(refused)
    assert sorted(tmp_path.iterdir()) == [weights.parent, tmp_path / "run.lock"]
    assert weights.read_bytes() == b"weights"


def test_train__a_resumed_run_that_cannot_be_built_loses_nothing(tmp_path: Path) -> None:
    train(tiny_config(tmp_path / "run", train__epochs=1))
    (tmp_path / "run" / "run.json").unlink()
    before = sorted((tmp_path / "run").rglob("*"))
    resumed = tiny_config(tmp_path / "run", train__epochs=1, run__resume=True)
    with pytest.raises(ConfigError, match="images"):
        train(resumed, data=load_data("synthetic", num_train=8, num_test=8, num_classes=4, size=16))
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_run_folder__withdrawn_keeps_what_somebody_put_there_meanwhile(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "new" / "run")
    folder = folder_for(config)
    folder.prepare(config)
    (folder.path / "thesis.tex").touch()
    folder.withdraw()
    assert list(folder.path.iterdir()) == [folder.path / "thesis.tex"]


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/x"])
def test_run_folder__where_none_can_be_made_is_refused_in_words(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    config = tiny_config(tmp_path / place)
    with pytest.raises(ConfigError, match=r"cannot be made or written \(.*\); choose a run.folder inside a folder"):
        folder_for(config).prepare(config)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_run_folder__a_link_to_nowhere_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "unmounted" / "disk")
    config = tiny_config(tmp_path / "run")
    with pytest.raises(ConfigError, match="cannot be made or written"):
        folder_for(config).prepare(config)
    assert (tmp_path / "run").is_symlink()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("{}", "it has no 'best_epoch'"),
        ("[]", "it does not hold the figures of a run"),
        ('{"best_epoch": 1, "best_accuracy": 0.5, "test": 3}', "it does not hold the figures of a run"),
        ('{"best_epoch": 1, "best_accuracy": null, "test": {"accuracy": 0.5}}', "it does not hold the figures"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_result__a_damaged_file_is_named_with_what_to_do(tmp_path: Path, content: str, reason: str) -> None:
    folder = RunFolder(tmp_path)
    folder.result_file.write_text(content)
    with pytest.raises(ConfigError) as refused:
        folder.result()
    said = str(refused.value)
    assert said.startswith(f"{folder.result_file} is damaged (") and said.endswith("): delete it and resume")
    assert reason in said


def test_metrics__an_unfinished_line_and_epochs_to_come_are_dropped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for epoch in (1, 2, 3):
        folder.append_metrics({**ROW, "epoch": epoch})
    with folder.metrics_file.open("a") as file:
        file.write('{"epoch": 4, "lo')
    assert [row["epoch"] for row in folder.metrics()] == [1, 2, 3]
    assert folder.keep_metrics(2) == [{**ROW, "epoch": 1}, {**ROW, "epoch": 2}]
    folder.append_metrics({**ROW, "epoch": 3})
    assert [row["epoch"] for row in folder.metrics()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"garbage", "Expecting value"),
        (b"\xff\xfe", "codec can't decode"),
        (b"[1]", "it is no object with an epoch"),
        (b"{}", "it is no object with an epoch"),
        (b'{"epoch": 2}', "None is not a valid SurrogateMode"),
        (json.dumps({**ROW, "epoch": 2, "lambd": "x"}).encode(), "lambd must be a number, got 'x'"),
        (json.dumps({**ROW, "epoch": 2, "seconds": None}).encode(), "seconds must be a number, got None"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_metrics__a_damaged_line_is_named_with_what_to_do(tmp_path: Path, line: bytes, reason: str) -> None:
    folder = RunFolder(tmp_path)
    folder.append_metrics({**ROW, "epoch": 1})
    with folder.metrics_file.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(ConfigError, match=rf"metrics\.jsonl: line 2 is damaged \(.*{reason}.*\); bring back a copy"):
        folder.keep_metrics(1)


@pytest.mark.parametrize("epochs", [[], [1], [2], [1, 1], [1, 3], [2, 1]])
def test_metrics__epochs_that_were_trained_and_are_not_there_are_missed(tmp_path: Path, epochs: list[int]) -> None:
    folder = RunFolder(tmp_path)
    for epoch in epochs:
        folder.append_metrics({**ROW, "epoch": epoch})
    with pytest.raises(ConfigError, match=r"must hold the epochs from 1 on, 2 at least, each once, got"):
        folder.keep_metrics(2)
    assert len(folder.metrics_file.read_text().splitlines() if epochs else []) == len(epochs), "nothing was dropped"


def test_train__a_run_that_lost_its_metrics_is_not_continued_without_a_word(tmp_path: Path) -> None:
    result = train(tiny_config(tmp_path / "run", train__epochs=1))
    (tmp_path / "run" / "metrics.jsonl").unlink()
    resumed = tiny_config(tmp_path / "run", train__epochs=1, run__resume=True)
    for gone in ("finished", "unfinished"):
        with pytest.raises(ConfigError, match=r"metrics\.jsonl must hold the epochs from 1 on, 1 at least"):
            train(resumed)
        (result.folder / "run.json").unlink(missing_ok=gone == "unfinished")


def test_train__a_refused_resume_leaves_the_unfinished_files_of_the_process_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock.alone_in.__wrapped__, "__defaults__", (0.0,))  # type: ignore[attr-defined]
    config = tiny_config(tmp_path / "run", train__epochs=1)
    folder_for(config).prepare(config)
    under_way = [tmp_path / "run" / ".run.json.0.part", tmp_path / "run" / "checkpoints" / ".best.safetensors.1.part"]
    for path in under_way:
        path.touch()
    resumed = tiny_config(tmp_path / "run", train__epochs=1, run__resume=True)
    with folder_lock.alone_in(tmp_path / "run"), pytest.raises(ConfigError, match="another process is training in"):
        train(resumed)
    assert all(path.exists() for path in under_way)
    train(resumed)
    assert not any(path.exists() for path in under_way), "alone, it removes what a killed process left"


def test_write_atomically__failure_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("broken")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="broken"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_write_atomically__others_may_read_what_they_may_read_of_any_new_file(tmp_path: Path) -> None:
    """Files made by tempfile are private: a challenge written for third parties could not be read by them."""
    (tmp_path / "plain").write_bytes(b"")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
