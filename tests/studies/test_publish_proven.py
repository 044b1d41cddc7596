"""Figures on passing receipts, told beside those of attacks that rank and prove nothing."""

from pathlib import Path

import pytest
from studies.publish import publish

from attention_cem.studies import Cell, load_study
from tests.studies.publishing import MAIN, figures, fill, page, repository, summary

SCREENED = MAIN.replace('budget = "standard"', 'budget = "screening"')
# Another folder for the same configurations, attacked with more.
FINALISTS = MAIN.replace("main-cifar10", "finalists-cifar10")
SCREENING = {"budget": "screening", "receipt_ok": False}


def lower(cell: Cell) -> tuple[float, float]:
    accuracy, mse = figures(cell)
    return accuracy, 0.9 * mse


def both(tmp_path: Path, finalists: str = FINALISTS) -> Path:
    root = repository(tmp_path, SCREENED, finalists)
    fill(root, "main-cifar10", more=SCREENING)
    return root


def front(root: Path) -> str:
    publish(root)
    return (root / "README.md").read_text(encoding="utf-8")


def test_proven__a_screened_target_names_the_study_that_meets_it_on_receipts(tmp_path: Path) -> None:
    root = both(tmp_path)
    fill(root, "finalists-cifar10", lower)
    text = front(root)
    target = summary(root)["targets"][0]
    assert target["met"] is True and target["screened"] and target["confirmed_in"] == ["finalists-cifar10"]
    assert "; on passing receipts in finalists-cifar10, which does not decide: 2.020× at 87.00 %" in target["why"]
    assert "| yes, by screening; on receipts in finalists-cifar10 |" in page(root, "README")
    assert "by attacks that prove nothing yet; for 1 of these another study says so on passing receipts, " in text
    assert "| … on passing receipts | **1.51×** (" in text
    assert "| ……凭据全部通过 | **1.51×**（" in (root / "README.zh.md").read_text(encoding="utf-8")
    assert "| `finalists-cifar10`: standard audit |" in text and "3 seeds, screening audit.\n" in text
    whole = "| `finalists-cifar10`: vgg11_bn, all images, 60 epochs, 3 seeds, standard audit; λ 0.1 to 1 against λ 4"
    assert f"{whole} to 64 |" in page(root, "README")


@pytest.mark.parametrize("spoil", ["receipt", "seed", "budget", "gain"])
def test_proven__nothing_is_confirmed_by_less(tmp_path: Path, spoil: str) -> None:
    root = both(tmp_path, SCREENED.replace("main-", "finalists-") if spoil == "budget" else FINALISTS)
    make = figures if spoil != "gain" else lambda cell: (figures(cell)[0], 0.02)
    more = {"budget": "screening"} if spoil == "budget" else {}
    fill(root, "finalists-cifar10", make, lambda c: spoil != "seed" or c.config.train.seed < 2, more)
    if spoil == "receipt":
        one = {"sound": 1.0}
        fill(
            root,
            "finalists-cifar10",
            keep=lambda c: c.lambd == one.get(c.method) and c.config.train.seed == 1,
            more={"receipt_ok": False},
        )
    text = front(root)
    target = summary(root)["targets"][0]
    assert target["met"] is True and target["confirmed_in"] == []
    assert "on receipts in" not in page(root, "README") and "another study says so" not in text
    if spoil != "gain":
        assert "on passing receipts |" not in text
    assert ("| … on receipts, of which 26 of 27 pass | **1.51×** (" in text) is (spoil == "receipt")


def test_proven__the_page_shows_each_attack_and_marks_those_without_a_receipt_of_their_own(
    tmp_path: Path,
) -> None:
    root = both(tmp_path)
    entry = {"mse": 0.05, "ssim": 0.1, "status": "passed"}
    attacks = {"inverter": entry, "optimisation": {**entry, "status": "under-trained"}, "ridge": entry}
    fill(root, "finalists-cifar10", more={"attacks": attacks})
    publish(root)
    text = page(root, "main")
    assert "| 0.0500 ± 0.0000 (0.100) | 0.0500 ± 0.0000 (0.100) † | 0.0500 ± 0.0000 (0.100) | " in text
    assert "†: in some seed the attack's own receipt does not pass" in text


@pytest.mark.parametrize(("mse", "told"), [(0.1, True), (0.001, False)])
def test_proven__more_accurate_and_more_private_is_said_only_where_it_is_so_in_every_seed(
    tmp_path: Path, mse: float, told: bool
) -> None:
    def best(cell: Cell) -> tuple[float, float]:
        if cell.method != "sound" or (cell.config.train.seed == 1 and not told):
            return figures(cell)
        return 0.95, mse

    root = both(tmp_path)
    fill(root, "finalists-cifar10", best)
    sentence = "In every seed `sound` is more accurate than `kmeans_constant` and has the higher worst-case MSE."
    publish(root)
    assert (sentence in page(root, "main")) is told


def test_proven__the_page_says_what_screening_missed(tmp_path: Path) -> None:
    root = both(tmp_path)
    fill(root, "finalists-cifar10", lower)
    text = front(root)
    assert " Worst cases of `finalists-cifar10` lie -10 to -10 % from what screening said.\n" in text
    lines = [line for line in page(root, "main").splitlines() if "| -10 % |" in line]
    assert len(lines) == 12 and all("finalists-cifar10 · `" in line for line in lines)
    assert lines[0].startswith("| noise | 0 | 3 | 0.00")
    assert page(root, "main").count("What screening missed") == 1


def test_proven__nothing_is_said_to_be_outdone_without_receipts(tmp_path: Path) -> None:
    another = FINALISTS.split("[[method]]")[-1].replace('"sound"', '"another"').replace("slot_mixture", "gated")
    root = both(tmp_path, f"{FINALISTS}[[method]]{another}")
    fill(root, "finalists-cifar10", keep=lambda cell: cell.method != "another")
    sentence = "In every seed `sound` is more accurate than `another` and has the higher worst-case MSE."
    for receipt in (True, False):
        fill(root, "finalists-cifar10", lambda c: (0.8, 0.02), lambda c: c.method == "another", {"receipt_ok": receipt})
        publish(root)
        assert (sentence in page(root, "main")) is receipt


def test_proven__an_attack_that_does_not_say_whether_its_receipt_passes_is_marked(tmp_path: Path) -> None:
    root = both(tmp_path)
    fill(root, "finalists-cifar10", more={"attacks": {"inverter": {"mse": 0.05, "ssim": 0.1}}})
    publish(root)
    assert "| 0.0500 ± 0.0000 (0.100) † |" in page(root, "main")


@pytest.mark.parametrize("old", [True, False])
def test_proven__an_attack_that_kept_its_start_has_a_mark_of_its_own(tmp_path: Path, old: bool) -> None:
    """Older results do not say so: their figures do, equal up to rounding, or no step at all."""
    entry = {"mse": 0.05, "ssim": 0.1, "status": "passed", "reason": ""}
    kept = {**entry, "status": "passed" if old else "kept its start", "reason": "no change; weight 0, 0 steps"}
    attacks = {
        "inverter": entry,
        "gan_inverter": {**kept, "mse": 0.0500001},
        "optimisation_from_inverter": {**kept, "mse": 0.06},
    }
    root = both(tmp_path)
    fill(root, "finalists-cifar10", more={"attacks": attacks})
    publish(root)
    text = page(root, "main")
    assert "| 0.0500 ± 0.0000 (0.100) | 0.0500 ± 0.0000 (0.100) ‡ | 0.0600 ± 0.0000 (0.100) ‡ |" in text
    assert "‡: it refines the inverter's result" in text and "‡：" in text


def test_proven__audits_that_are_not_settled_are_counted_and_named(tmp_path: Path) -> None:
    root = both(tmp_path)
    fill(root, "finalists-cifar10")
    assert "more effort will find more" not in front(root)
    unsettled = {"warnings": ["not settled: the second half changed it by -2.1 %: more effort will find more"]}
    first = next(
        cell.id for cell in load_study(root / "studies/finalists-cifar10.toml").cells if cell.method == "sound"
    )
    fill(root, "finalists-cifar10", keep=lambda cell: cell.id == first, more=unsettled)
    text = front(root)
    assert " Of the audits of `finalists-cifar10` 1 will find more with more effort, by their own account.\n" in text
    told = page(root, "main")
    assert "1 of 36 audits call themselves not settled" in told and "自称尚未定论" in told
    assert "still moved the MSE: `sound` seed 0 -2 %." in told


def test_proven__what_trainings_warned_of_stands_below_their_settings(tmp_path: Path) -> None:
    root = both(tmp_path)
    fill(root, "finalists-cifar10")
    publish(root)
    assert "Trainings warned" not in page(root, "main")
    cells = load_study(root / "studies/finalists-cifar10.toml").cells
    for held, cell in enumerate([cell for cell in cells if cell.method == "sound"][:2]):
        warned = {"warnings": [f"training: {held}.5 slots hold almost no samples", "inverter: under-trained"]}
        fill(root, "finalists-cifar10", keep=lambda each, only=cell.id: each.id == only, more=warned)
    publish(root)
    told = page(root, "main")
    assert ": `sound`, 2 of " in told and " runs: 0.5 slots hold almost no samples." in told


def test_proven__the_worst_case_is_the_lowest_of_the_passing_inverters(tmp_path: Path) -> None:
    entry = {"mse": 0.9, "ssim": 0.1, "psnr": 9.0, "ci95": [0.8, 1.0], "status": "passed"}
    attacks = {
        "inverter": entry,
        "inverter_large": {**entry, "mse": 1e-4},
        "optimisation": {**entry, "mse": 1e-6},
        "gan_inverter": {**entry, "mse": 1e-5, "status": "under-trained"},
    }
    root = both(tmp_path)
    fill(root, "finalists-cifar10", more={"attacks": attacks, "attack": "inverter"})
    publish(root)
    cells = [cell for cell in summary(root)["cells"] if cell["study"] == "finalists-cifar10"]
    assert {(cell["attack"], cell["mse"]) for cell in cells} == {("inverter_large", 1e-4)}
