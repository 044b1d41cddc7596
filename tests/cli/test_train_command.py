import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from attention_cem.cli.main import main
from attention_cem.cli.progress import LineObserver, health, watch
from attention_cem.training import Observer, TrainingInterrupted

ROOT = Path(__file__).parents[2]
TINY = [
    *("--data.options.size", "16", "--data.options.num_train", "120", "--data.options.num_test", "40"),
    *("--data.options.num_classes", "4", "--model.name", "tiny_cnn", "--train.batch_size", "16"),
    *("--run.device", "cpu", "--run.tensorboard", "false", "--run.figures", "false"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train.epoch", "3"], "unknown setting 'train.epoch'; did you mean 'train.epochs'?"),
        (["--epochs", "3"], "unknown option --epochs; did you mean --train.epochs?"),
        (["--confg", "x"], "unknown option --confg; did you mean --config?"),
        (["--train.epochs", "many"], "train.epochs must be a whole number, got 'many'"),
        (["--train.epochs"], "expected one argument"),
        (["--surrogate.arguments.k"], "--surrogate.arguments.k needs a value"),
        (["--surrogate.arguments.k", "--quiet", "1"], "--surrogate.arguments.k needs a value"),
        (["--data.option.size", "16"], "did you mean 'data.options.size'?"),
        (["--data.option", "16"], "did you mean 'data.options.KEY'?"),
        (["--defence.gaussian_noise", "0.1"], "must be a table, got 0.1; set its entries one by one, as"),
        (["stray"], "unexpected argument 'stray'"),
        (["--config", "absent.toml"], "cannot read the configuration absent.toml"),
        (["--resume", "absent"], "absent is no run folder"),
        (["--resume", "x" * 300], "File name too long"),
        (["--surrogate.lambd", "3"], "surrogate.name is 'none'"),
        ([], "say what to train, e.g. --config configs/synthetic-sound.toml, or --resume FOLDER"),
        (["--quiet", "--run.folder", "x", "--run.device", "cpu"], "say what to train"),
        ([*TINY, "--run.folder", "/proc/x"], "the folder /proc/x cannot be made or written"),
    ],
)
def test_train__a_wrong_request_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("attention-cem train: error: ") and message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (["--data.options", '{"size": 16, "num_train": 64}'], "--data.options.size 16 --data.options.num_train 64"),
        (["--data.options={size = 16, note = 'a b'}"], "--data.options.size 16 --data.options.note 'a b'"),
        (["--surrogate.arguments", '{"flag": true, "l": [1, 2]}'], "--surrogate.arguments.flag true "),
        (["--defence", '{"gaussian_noise": {"sigma": 0.1}}'], "--defence.gaussian_noise.sigma 0.1"),
        (["--data.options", "{size:16}"], "--data.options.KEY VALUE for each entry, e.g. --data.options.size 16"),
        (["--data.options", "[1]"], "--data.options.KEY VALUE for each entry"),
        (["--data.options", "[" * 100_000], "--data.options.KEY VALUE for each entry"),
        (["--data.options"], "--data.options.KEY VALUE for each entry"),
        (["--defence"], "--defence.KEY VALUE for each entry, e.g. --defence.gaussian_noise.sigma 0.025"),
    ],
)
def test_train__a_table_as_one_value_is_refused_with_what_to_write_instead(
    arguments: list[str], instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments]) == 2
    name = arguments[0].partition("=")[0]
    said = f"attention-cem train: error: {name} is a table and takes no value of its own; write {instead}"
    assert capsys.readouterr().err.startswith(said)


def test_train__what_a_refused_table_says_to_write_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    meant = {"size": 16, "root": "a folder", "pair": [1, 2], "deep": {"on": True}}
    assert main(["train", "--data.options", json.dumps(meant)]) == 2
    instead = shlex.split(capsys.readouterr().err.partition("; write ")[2])
    assert main(["train", *instead, "--print-config"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["data"]["options"] == meant


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.options.size", "wide"], "size must be a whole number of at least 8, got 'wide'"),
        (["--defence.gaussian_noise.sigma", "much"], "sigma must be a finite number above 0, received 'much'"),
        (["--data.name", "cifar11"], "unknown data set 'cifar11'"),
        (["--surrogate.name", "slotmixture", "--surrogate.lambd", "1"], "did you mean 'slot_mixture'?"),
        (["--data.name", "cifar10", "--data.root", "absent"], "How to get it"),
        (["--data.name", "orl", "--data.root", "absent", "--train.epochs", "1"], "folder absent is not a folder; name"),
    ],
)
def test_train__names_that_only_the_library_knows(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments, "--run.folder", str(tmp_path / "run"), "--quiet"]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 and message in error[0]


def test_train__overrides_win_over_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(ROOT / "configs" / "cifar10-paper.toml")
    overrides = ["--train.epochs=2", "--defence.gaussian_noise.sigma", "0.5", "--surrogate.arguments.num_clusters=3"]
    assert main(["train", "--config", config, *overrides, "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "epochs = 2\n" in printed and "sigma = 0.5" in printed and "num_clusters = 3" in printed


def test_train__runs_reports_and_refuses_to_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "run")
    assert main(["train", *TINY, "--train.epochs", "1", "--run.folder", folder]) == 0
    captured = capsys.readouterr()
    assert "test accuracy" in captured.out and folder in captured.out and "epoch 1/1" in captured.err
    assert main(["train", *TINY, "--train.epochs", "1", "--run.folder", folder]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main(["train", "--resume", folder]) == 0, "a finished run reports its result again"
    assert main(["train", "--resume", folder, "--train.lr", "1"]) == 2
    assert "train.lr: 0.05 → 1.0" in capsys.readouterr().err


def test_train__a_corrected_command_may_use_the_folder_of_the_refused_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", *TINY, "--train.epochs", "1", "--run.folder", str(tmp_path / "run"), "--quiet"]
    assert main([*command, "--defence.gaussian_noise.sigma", "-0.1"]) == 2
    assert main([*command, "--defence.gaussian_noise.sigma", "0.1"]) == 0, capsys.readouterr().err


def test_train__a_finished_run_without_its_weights_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["train", *TINY, "--train.epochs", "1", "--run.folder", str(folder), "--quiet"]) == 0
    shutil.rmtree(folder / "checkpoints")
    capsys.readouterr()
    assert main(["train", "--resume", str(folder)]) == 0
    said = capsys.readouterr().err
    assert f"the weights are gone, {folder}/checkpoints/best.safetensors is missing" in said and said.count("\n") == 1
    (folder / "run.json").write_text("{")
    assert main(["train", "--resume", str(folder)]) == 2
    assert f"error: {folder}/run.json is damaged (" in capsys.readouterr().err
    (folder / "run.json").unlink()
    assert main(["train", "--resume", str(folder), "--quiet"]) == 0
    assert "weights are gone" not in capsys.readouterr().err and (folder / "checkpoints/best.safetensors").is_file()


def test_train__what_the_system_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    command = ["train", *TINY, "--train.epochs", "1", "--run.folder", str(folder), "--quiet"]

    def unreadable(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "data/cats")

    monkeypatch.setattr("attention_cem.training.building.load_data", unreadable)
    assert main(command) == 1
    told = "data/cats: Permission denied; check the permissions and the disk, or name another place"
    assert capsys.readouterr().err == f"attention-cem train: {told}\n" and not folder.exists()
    monkeypatch.undo()
    assert main(command) == 0
    (folder / "run.lock").unlink()
    (folder / "run.lock").mkdir()
    capsys.readouterr()
    assert main(["train", "--resume", str(folder)]) == 1
    assert f"attention-cem train: {folder}/run.lock: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [b"garbage\n", b"\xff\xfe\n", b"[1]\n", b"{}\n", None])
def test_train__damaged_metrics_are_one_line(
    tmp_path: Path, damage: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["train", *TINY, "--train.epochs", "1", "--run.folder", str(folder), "--quiet"]) == 0
    (folder / "run.json").unlink()
    (folder / "metrics.jsonl").unlink()
    if damage is not None:
        (folder / "metrics.jsonl").write_bytes(damage)
    capsys.readouterr()
    assert main(["train", "--resume", str(folder), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"attention-cem train: error: {folder}/metrics.jsonl") and error.count("\n") == 1


def test_train__the_command_to_continue_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "my run; rm")

    def stopped(*_: object, **__: object) -> None:
        raise TrainingInterrupted(folder)

    monkeypatch.setattr("attention_cem.training.run.train", stopped)
    assert main(["train", *TINY, "--run.folder", folder, "--quiet"]) == 130
    told = capsys.readouterr().err.splitlines()[-1]
    assert shlex.split(told) == ["attention-cem", "train", "--resume", folder]


def test_train__without_arguments_still_prints_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--print-config"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["model"]["name"] == "vgg11_bn"


@pytest.mark.slow
def test_train__ctrl_c_leaves_a_run_that_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-m", "attention_cem.cli.main", "train"]
    settings = [*TINY, "--train.epochs", "200", "--run.folder", str(folder)]
    process = subprocess.Popen([*command, *settings], stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 60
    while not (folder / "metrics.jsonl").is_file() or not (folder / "metrics.jsonl").stat().st_size:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"attention-cem train --resume {folder}" in errors and "Traceback" not in errors
    assert list((folder / "checkpoints").glob("step-*.safetensors"))


@pytest.mark.slow
def test_train__the_cifar10_preset_on_a_small_part_of_the_data(tmp_path: Path) -> None:
    data = os.environ.get("ATTENTION_CEM_DATA", str(ROOT.parent / "shared" / "data"))
    if not (Path(data) / "cifar10_test.npz").exists():
        pytest.skip(f"no CIFAR-10 in {data}; set ATTENTION_CEM_DATA to the folder that has it")
    config = str(ROOT / "configs" / "cifar10-sound.toml")
    limits = ["--data.limit", "200", "--data.validation_fraction", "0.25", "--train.epochs", "2"]
    where = ["--data.root", data, "--run.folder", str(tmp_path / "run")]
    assert main(["train", "--config", config, *limits, *where]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert len(rows) == 2 and all(row["leakage_share"] is not None for row in rows)


def test_watch__is_silent_when_asked_and_on_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    with watch(quiet=True) as observer:
        assert type(observer) is Observer
    monkeypatch.setenv("RANK", "1")
    with watch(quiet=False) as observer:
        assert type(observer) is Observer
    monkeypatch.delenv("RANK")
    with watch(quiet=False) as observer:
        assert isinstance(observer, LineObserver)


def test_health__tells_of_a_surrogate_that_shuts_off() -> None:
    row = {
        "accuracy": 0.5,
        "loss": 1.0,
        "images_per_s": 1234.5,
        "surrogate_mode": "active",
        "rob_loss": 0.25,
        "lambd": 16.0,
        "active_classes": 10.0,
        "shutoff_share": 0.75,
    }
    assert health(row) == (
        "accuracy 50.00%  loss 1.000  1,234 images/s  rob_loss 0.2500  λ 16  10.0 classes active  shut off 75%"
    )


@pytest.mark.parametrize(("lambd", "told"), [(0.0, "λ 0, the surrogate is only watched"), (0.5, "λ 0.5")])
def test_health__says_that_lambda_is_zero(lambd: float, told: str) -> None:
    # broke: a run with λ = 0 was "warming up" to its last epoch
    row = {"accuracy": 0.5, "loss": 1.0, "images_per_s": 9.0, "surrogate_mode": "observe", "rob_loss": 0.25}
    assert health({**row, "lambd": lambd, "shutoff_share": 0.0}).endswith(f"rob_loss 0.2500  {told}")
