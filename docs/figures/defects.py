"""Tables of the defect studies, made from the results that ``attention-cem study run`` left.

Reads ``results/studies/defect-*/*.json`` and writes ``defect-*.en.md`` and ``defect-*.zh.md``: no figure is typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from attention_cem.studies import Study, load_study, read_result
from attention_cem.training.files import write_atomically
from docs.figures.drawing import ASSETS

ROOT = Path(__file__).parents[2]
STUDIES = ("defect-shut-off", "defect-pooling", "defect-few-samples")
CHINESE = {
    "noise only": "仅加噪声",
    "slots (documents)": "槽代理（文档原样）",
    "slots, shut-off removed": "槽代理，去掉早期关断",
    "slots assign, raw z is measured": "槽只负责分配，统计原始 z",
    "slot mixture": "槽混合",
    "pooling per dimension (documents)": "门控池化，逐维（文档原样）",
    "pooling per dimension, raw z": "门控池化，逐维，统计原始 z",
    "pooling, trace (documents)": "门控池化，迹形式（文档原样）",
    "pooling as adversary": "门控池化，按对手训练",
}
HEADS = {
    "en": ("method", "λ", "seeds", "accuracy %", "attack MSE", "steps shut off"),
    "zh": ("方法", "λ", "种子数", "准确率 %", "攻击 MSE", "被关断的步数占比"),
}
NOTES = {
    "en": "Study file `{file}`, budget `{budget}`, program {commits}; {found} of {wanted} runs. Mean ± standard "
    "deviation over the seeds; higher MSE is more private; an attacker who sees nothing reaches {floor}. {receipts}",
    "zh": "研究文件 `{file}`，预算 `{budget}`，程序版本 {commits}；已有 {found} / {wanted} 次运行。"
    "表中为各种子的均值 ± 标准差；MSE 越高越私密；什么也看不到的攻击者得到 {floor}。{receipts}",
}
RECEIPTS = {
    "en": "{bad} of {found} audits have no passing receipt (a quick budget seldom gives one): their true MSE "
    "may be lower.",
    "zh": "{found} 次审计中有 {bad} 次没有通过凭据（快速预算很少能通过）：真实 MSE 可能更低。",
}


def results_of(study: Study) -> list[dict[str, Any]]:
    """The study's stored results that belong to a cell it has now."""
    known = {cell.id for cell in study.cells}
    files = sorted((ROOT / "results" / "studies" / study.name).glob("*.json"))
    return [result for result in map(read_result, files) if result["cell"] in known]


def table(name: str, language: str) -> str:
    """One study as a Markdown table with a line on where its figures come from."""
    study = load_study(ROOT / "studies" / f"{name}.toml")
    results = results_of(study)
    if not results:
        raise ValueError(
            f"there are no results of {name}: run studies/{name}.toml and put them in results/studies/{name}"
        )
    lines = [f"| {' | '.join(HEADS[language])} |", f"|{' --- |' * len(HEADS[language])}"]
    for method in dict.fromkeys(cell.method for cell in study.cells):
        mine = [result for result in results if result["method"] == method]
        if not mine:
            continue
        shown = CHINESE[method] if language == "zh" else method
        shut = [result["shutoff_share"] for result in mine if result["shutoff_share"] is not None]
        row = (
            shown,
            f"{mine[0]['lambda']:g}",
            str(len(mine)),
            _spread([100 * result["accuracy"] for result in mine], 1),
            _spread([result["mse"] for result in mine], 4),
            f"{100 * fmean(shut):.0f} %" if shut else "–",
        )
        lines.append(f"| {' | '.join(row)} |")
    bad = sum(not result["receipt_ok"] for result in results)
    note = NOTES[language].format(
        file=f"studies/{name}.toml",
        budget=study.budget,
        commits=", ".join(f"`{commit}`" for commit in sorted({str(result["commit"])[:12] for result in results})),
        found=len(results),
        wanted=len(study.cells),
        floor=f"{fmean(result['floor_mse'] for result in results):.4f}",
        receipts=RECEIPTS[language].format(bad=bad, found=len(results)) if bad else "",
    )
    return "\n".join([*lines, "", note.strip()]) + "\n"


def draw(folder: Path = ASSETS) -> list[Path]:
    """Write all tables."""
    written = []
    for name in STUDIES:
        for language in ("en", "zh"):
            file = folder / f"{name}.{language}.md"
            write_atomically(file, table(name, language).encode())
            written.append(file)
    return written


def _spread(values: Sequence[float], digits: int) -> str:
    told = f"{fmean(values):.{digits}f}"
    return told if len(values) < 2 else f"{told} ± {stdev(values):.{digits}f}"
