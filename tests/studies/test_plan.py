import os
import subprocess
import sys
from pathlib import Path

import pytest

from attention_cem.studies.plan import Study, load_study
from attention_cem.training import ConfigError

ROOT = Path(__file__).parents[2]


def study(tmp_path: Path, text: str) -> Study:
    file = tmp_path / "s.toml"
    file.write_text(text)
    return load_study(file)


def test_load_study__expands_the_matrix(tmp_path: Path) -> None:
    cells = study(
        tmp_path, '[matrix]\nsurrogate = ["slot_mixture", "gated"]\nlambda = [0.1, 1.0]\nseed = [0, 1, 2]'
    ).cells
    assert len({cell.id for cell in cells}) == 12
    assert {cell.method for cell in cells} == {"slot_mixture", "gated"}
    assert {(cell.lambd, cell.config.train.seed) for cell in cells} == {(m, s) for m in (0.1, 1.0) for s in (0, 1, 2)}


def test_load_study__without_a_surrogate_lambda_is_zero_and_equal_cells_are_one(tmp_path: Path) -> None:
    cells = study(tmp_path, '[matrix]\nsurrogate = ["none", "gated"]\nlambda = [0.1, 1.0]').cells
    assert [(cell.method, cell.lambd) for cell in cells] == [("none", 0.0), ("gated", 0.1), ("gated", 1.0)]


def test_load_study__sigma_zero_is_no_noise_and_defences_are_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("[defence.gaussian_noise]\nsigma = 0.1\n")
    text = 'base = "base.toml"\n[matrix]\nsigma = [0, 0.2]\n'
    assert [cell.sigma for cell in study(tmp_path, text).cells] == [None, 0.2]
    text = 'base = "base.toml"\n[matrix]\ndefences = [{ dropout = { rate = 0.5 } }, {}]\n'
    cells = study(tmp_path, text).cells
    assert [cell.config.defence for cell in cells] == [{"dropout": {"rate": 0.5}}, {}]
    assert [cell.method for cell in cells] == ["dropout", "no defence"]


def test_load_study__another_surrogate_does_not_inherit_the_base_ones_arguments(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('[surrogate]\nname = "slot_mixture"\n[surrogate.arguments]\nbank_size = 64\n')
    text = 'base = "base.toml"\n[matrix]\nsurrogate = ["slot_mixture", "gated"]\n'
    assert [cell.config.surrogate.arguments for cell in study(tmp_path, text).cells] == [{"bank_size": 64}, {}]


def test_load_study__methods_have_their_own_settings_and_axes(tmp_path: Path) -> None:
    text = """
    baseline = "k-means"
    [settings]
    "train.epochs" = 3
    [matrix]
    seed = [0, 1]
    [[method]]
    name = "k-means"
    settings = { "surrogate.name" = "kmeans" }
    matrix = { lambda = [4.0, 16.0] }
    [[method]]
    name = "slots"
    settings = { "surrogate.name" = "slot_mixture", "surrogate.lambd" = 0.3 }
    matrix = { "surrogate.arguments.num_slots" = [2, 4] }
    [[cell]]
    method = "slots, num_slots 4"
    settings = { "surrogate.name" = "slot_mixture", "surrogate.lambd" = 9.0 }
    """
    made = study(tmp_path, text)
    methods = [cell.method for cell in made.cells]
    assert {name: methods.count(name) for name in methods} == {
        "k-means": 4,
        "slots, num_slots 2": 2,
        "slots, num_slots 4": 3,
    }
    assert {cell.config.train.epochs for cell in made.cells} == {3} and made.cells[-1].lambd == 9.0


def test_load_study__methods_of_one_name_keep_each_its_base(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("[train]\nepochs = 7\n")
    (tmp_path / "two.toml").write_text("[train]\nepochs = 9\n")
    text = "".join(
        f'[[method]]\nname = "m"\nbase = "{base}.toml"\nmatrix = {{ seed = [{seed}] }}\n'
        for seed, base in enumerate(("one", "two"))
    )
    made = study(tmp_path, text + '[[cell]]\nmethod = "m"\nbase = "one.toml"\nsettings = { "train.seed" = 2 }\n')
    assert [(cell.config.train.seed, cell.config.train.epochs) for cell in made.cells] == [(0, 7), (1, 9), (2, 7)]


@pytest.mark.parametrize("names", [("槽", "均值"), ("Slots", "slots+"), ("m" * 80 + "1", "m" * 80 + "2")])
def test_load_study__a_run_two_methods_share_belongs_to_both_whatever_their_names(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    cells = study(
        tmp_path, "".join(f'[[method]]\nname = "{name}"\nmatrix = {{ seed = [0] }}\n' for name in names)
    ).cells
    assert [cell.method for cell in cells] == list(names)
    assert len({cell.id for cell in cells}) == 2 and len({cell.id[-13:] for cell in cells}) == 1


def test_load_study__defences_keep_their_names_at_every_sigma(tmp_path: Path) -> None:
    cells = study(tmp_path, "[matrix]\nsigma = [0, 0.1, 0.2]\ndefences = [{ dropout = { rate = 0.5 } }, {}]\n").cells
    assert [cell.method for cell in cells] == ["dropout", "no defence"] * 3
    assert [cell.sigma for cell in cells] == [None, None, 0.1, 0.1, 0.2, 0.2]
    assert [cell.settings["defence"] for cell in cells] == [{"dropout": {"rate": 0.5}}, {}] * 3


def test_load_study__ids_follow_what_is_computed_and_nothing_else(tmp_path: Path) -> None:
    one = study(tmp_path, "[matrix]\nseed = [0]")
    same = study(tmp_path, '[matrix]\nseed = [0]\n[settings]\n"run.device" = "cpu"')
    other = study(tmp_path, '[matrix]\nseed = [0]\n[settings]\n"train.lr" = 0.1')
    assert one.cells[0].id == same.cells[0].id != other.cells[0].id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "describes no run"),
        ("matrx = 1", "did you mean 'matrix'"),
        ("[matrix]\nseed = 3", "an axis of a matrix is a list of values"),
        ('[matrix]\nseed = [0, 1]\n"train.seed" = [2]', "matrix names train.seed twice"),
        ('[matrix]\n"train.epoch" = [3]', "did you mean 'train.epochs'"),
        ("[method]\nname = 1", r"write \[\[method\]\]"),
        ('[[method]]\nnom = "x"', "unknown key 'nom'"),
        ("accuracies = [87]\n[matrix]\nseed = [0]", "0.87, not 87"),
        ('budget = "endless"\n[matrix]\nseed = [0]', "budget must be one of"),
        ('name = "../out"\n[matrix]\nseed = [0]', "a study's name is"),
        ('baseline = "x"\n[matrix]\nseed = [0]', "is no method"),
        ("max_failures = 0\n[matrix]\nseed = [0]", "at least 1"),
        ("reference = [1]\n[matrix]\nseed = [0]", r"\[accuracy, mse\]"),
        ('reference = ["x", 1]\n[matrix]\nseed = [0]', "two finite numbers"),
        ("reference = [nan, inf]\n[matrix]\nseed = [0]", r"two finite numbers, got \[nan, inf\]"),
        ("smallest_difference = nan\n[matrix]\nseed = [0]", "finite number from 0 on, got nan"),
        ("smallest_difference = -1\n[matrix]\nseed = [0]", "finite number from 0 on, got -1"),
        ("base = 5\n[matrix]\nseed = [0]", "base must be text, got 5 in"),
        ("base = 5\n[sweep]\nlambda = { low = 1, high = 2 }", "base must be text, got 5 in"),
        ("[[method]]\nname = 5", "name must be text, got 5 in"),
        ('[[method]]\nname = ["a"]', r"name must be text, got \['a'\] in"),
        ('[[method]]\nname = "a"\nbase = []', r"base must be text, got \[\] in"),
        ("[[cell]]\nmethod = 5", "method must be text, got 5 in"),
        ("[matrix]\ndefences = [5, 6]", r"each value of defences is a table of defences, .*, got \[5, 6\]"),
        ("name = ", "not valid TOML"),
        ('base = "absent.toml"\n[matrix]\nseed = [0]', "cannot read the configuration"),
        (f"[matrix]\nseed = {list(range(101))}\nlambda = {list(range(100))}", "more than 10000 runs"),
    ],
)
def test_load_study__what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(tmp_path, text)


@pytest.mark.parametrize("file", sorted((ROOT / "studies").glob("*.toml")), ids=lambda file: file.stem)
def test_shipped_studies__can_be_read_and_repeat_seeds(file: Path) -> None:
    made = load_study(file)
    assert made.name == file.stem and len(made.title) > 10
    if made.cells:
        assert {cell.config.train.seed for cell in made.cells} >= {0, 1, 2}


def test_studies__reading_and_comparing_imports_neither_torch_nor_optuna() -> None:
    modules = "comparison, curves, gathering, plan, results, running, verdicts, worker"
    code = f"import sys\nimport attention_cem.cli.study\nfrom attention_cem.studies import {modules}\n"
    code += "sys.exit(' '.join({'torch', 'optuna', 'numpy'} & set(sys.modules)) or 0)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
