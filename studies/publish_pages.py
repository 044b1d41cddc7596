"""The pages of results: Markdown, English with short Chinese captions; every number comes from stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attention_cem.studies import compare
from studies.publish_comparisons import Compared
from studies.publish_figures import figure_name
from studies.publish_pictures import picture_words
from studies.publish_proven import missed_block, outright_words, unsettled_words, warned_words
from studies.publish_questions import scale_of
from studies.publish_reading import Experiment, StoredStudy
from studies.publish_rows import Row, rows_of, short_commit
from studies.publish_settings import Page, Settings
from studies.publish_tables import (
    OWN_RECEIPT,
    across_table,
    attacks_table,
    comparisons_table,
    settings_table,
    table,
    waves_table,
)

HOW_TO_READ = """\
Accuracy is the share of test images classified right from released features, scored once. MSE is the audit's worst
case: the lowest mean MSE over its attacks on test images, higher is more private; ± is the standard deviation over
seeds. Receipts: how many of the seeds' audits stand on attacks that converged and are calibrated; where one does not,
the true worst case may be lower. Configs are the first characters of each seed's configuration hash.

准确率在测试集上评一次；MSE 取各攻击中最低者（最坏情况），越高越私密；± 为种子间标准差。"""
HOW_MATCHED = """\
MSE ratio at equal accuracy: within each seed a method counts with the best that its runs, or mixtures of two of them,
have there (who uses each of two clients for a share of the images has the means of their accuracies and MSEs): one more
run never lowers a curve. Every curve ends at the run without a surrogate on the same base defence, with the same noise;
where a method is named with its base defence or way of training and the other side has neither, both end at the run
without any. Nothing is extrapolated. Geometric mean over seeds, 95 % Student's t interval on log ratios.
"(lowest)" marks a comparison at the lowest accuracy that all seeds of both sides cover, because
the study names none that they all cover. "≥" marks a lower bound: the first side is more accurate than the second ever
is, in some seeds, and counts with its least accurate efficient run there, its SSIM too; it can only say "better". Where
a seed cannot be read, the others decide nothing. Efficient runs are chosen by their test figures, for every method:
more settings are more choice. "Undefended": the share of the images that goes through the run without a surrogate,
first side / second side. A difference is said to hold no further than the first side's own runs reach, on average over
seeds; "where its own runs end" marks one that was read there, "beyond its own runs" one that was read further up. SSIM:
of the attack's images, first side / second side, in the same shares of the same runs; lower is more private. MSE counts
slow waves most, SSIM edges: a defence that moves one alone hides less than it seems.

同准确率下的 MSE 比值：每个种子内，取该方法各次运行及其两两混合中最好的
（两个客户端各用于一部分图像，准确率与 MSE 即按份额平均）；
每条曲线都以同一基础防御、同样噪声、不加代理损失的那次运行为端点；一方连同基础防御或训练方式一起命名而另一方没有时，
双方都以什么都不加的那次运行为端点。不外推；
对种子取几何平均，区间为对数比值的 95 % t 区间。
“(lowest)”表示研究文件未列出双方所有种子都覆盖的准确率，故取都覆盖的最低者。
“≥”表示下界：在某些种子中，前者的准确率高于后者所能达到的，故取其前沿上准确率最低的一次运行；只能说明“更好”。有种子无法比较时不下结论。
“Undefended %”为经由不加代理损失那次运行的图像份额（前者 / 后者）；差别的准确率范围不超出前者自己的运行（种子平均），
“where its own runs end”表示比较点恰在其末端，“beyond its own runs”表示已在其之外。
SSIM 为同样的运行按同样份额计算的攻击图像相似度（前者 / 后者），越低越私密。
MSE 主要反映慢波，SSIM 主要反映边缘：只改变其中一个的防御，隐藏的比看上去少。"""

HOW_MATCHED_TITLE = "How ratios at equal accuracy are made 同准确率的比值如何得出"
HOW_HIDDEN_TITLE = "What “stays hidden” means “仍被隐藏”指什么"
MATCHED = "MSE at equal accuracy 同准确率比较"
HIDDEN = "What stays hidden, coarse to fine 仍被隐藏的部分（由粗到细）"
HOW_HIDDEN = """\
What stays hidden: the worst attack's error by the cosine waves it is in, as a share of the error of one who sees
nothing; 1 is all. Waves 0-3 are what a client blind to 4×4 waves does not see.

仍被隐藏的部分：最坏攻击的误差按余弦波分解，除以什么都看不到时的误差；1 表示完全隐藏。"""


def study_page(
    page: Page,
    settings: Settings,
    experiments: Sequence[Experiment],
    compared: Mapping[str, Compared],
    pictures: Mapping[str, str],
) -> str:
    """A page with every experiment it is made of, or the commands that would give it content."""
    mine = [each for each in experiments if settings.page_of(each.studies[0].name) == page]
    done = [each for each in mine if each.finished]
    told = [
        part
        for each in done
        for part in _experiment(each, experiments, compared[each.name], settings, pictures.get(each.name))
    ]
    # What several studies of a page would have to explain stands once, at its beginning.
    parts = [f"# {page.title}\n\n{page.title_zh}", *([HOW_TO_READ] if done else [])]
    parts += folded(HOW_MATCHED_TITLE, [HOW_MATCHED] if MATCHED in told else [])
    parts += folded(HOW_HIDDEN_TITLE, [HOW_HIDDEN] if any(HIDDEN in part for part in told) else [])
    parts += told
    waiting = [stored for each in mine for stored in each.studies if not stored.finished]
    if waiting or not mine:
        parts.append(how_to_make(page, waiting))
    return "\n\n".join(parts) + "\n"


def how_to_make(page: Page, waiting: Sequence[StoredStudy]) -> str:
    """Which commands make the results that are not there."""
    if not waiting:
        files = ", ".join(f"`studies/{pattern}.toml`" for pattern in page.studies)
        return f"No results yet, and no study file that matches {files}. 尚无结果。"
    commands = "\n".join(f"{stored.command}    # {len(stored.study.cells)} runs" for stored in waiting)
    return (
        "No results yet of the studies below; this runs and stores them, then `make results`.\n\n"
        f"以下研究尚无结果，用下面的命令运行并存入，然后 `make results`：\n\n```sh\n{commands}\n```"
    )


def studies_table(studies: Sequence[StoredStudy]) -> str:
    """How far each study is."""
    return table(
        ["study", "title", "runs done", "to attack anew", "not used", "commits", "file"],
        (
            [
                stored.name,
                stored.study.title,
                f"{len(stored.finished)} of {len(stored.study.cells)}",
                str(sum(each.outdated for each in stored.finished)),
                str(len(stored.stale)),
                " ".join(f"`{short_commit(commit)}`" for commit in commits(stored)) or "–",
                f"`{stored.file}` `{stored.sha256[:8]}`",
            ]
            for stored in studies
        ),
    )


def commits(stored: StoredStudy) -> list[str]:
    """With which versions of the program a study's results were made."""
    return sorted({each.commit for each in stored.finished})


def _experiment(
    experiment: Experiment,
    experiments: Sequence[Experiment],
    compared: Compared,
    settings: Settings,
    picture: str | None,
) -> list[str]:
    planned = sum(len(stored.study.cells) for stored in experiment.studies)
    done = sum(len(stored.finished) for stored in experiment.studies)
    parts = [f"## {experiment.name}: {experiment.title}", _standing(experiment, settings, done, planned)]
    if experiment.name in settings.conclusions:
        words, words_zh = settings.conclusions[experiment.name]
        parts.append(f"**{words}.** {words_zh}。")
    if picture is not None:
        parts.append(picture_words(picture, folder="results/"))
    for data in experiment.data_sets():
        rows = rows_of(experiment, data)
        figure = figure_name(experiment, data).removeprefix("results/")
        parts += [f"### {data}", f"![Accuracy and MSE of every method on {data}]({figure})"]
        records = list(compared.records.get(data, {}).values())
        if records:
            parts += [MATCHED, comparisons_table(records)]
            parts += folded("What to keep in mind 须注意之处", _remarks(records))
        ours = [record for record in records if "sound" in record["a"]]
        if ours:
            parts += folded("The same at other accuracies 其他准确率", [across_table(ours)])
        not_made = [each for each in compared.missing if each.data == data and each.a_exists and each.b_exists]
        parts += folded(
            "Not comparable 无法比较",
            ["\n".join(f"- {each.key}: {each.reason}" for each in not_made)] if not_made else [],
        )
        parts += ["Every setting 全部设置", settings_table(rows)]
        parts += filter(None, (outright_words(rows), unsettled_words(rows), warned_words(rows)))
        attacks = attacks_table(rows)
        if attacks:
            marks = [OWN_RECEIPT] if "†" in attacks or "‡" in attacks else []
            parts += folded("Attack by attack: MSE (SSIM) 逐个攻击：MSE（SSIM）", [attacks, *marks])
        if missed := missed_block(experiments, experiment, data):
            parts.append(missed)
        waves = waves_table(rows)
        parts += folded(HIDDEN, [waves] if waves else [])
        parts += folded("Hypervolume 超体积", [_volumes(experiment, data)])
    return parts


def folded(title: str, parts: Sequence[str]) -> list[str]:
    """Parts that a reader opens who wants them; nothing where there are none."""
    return [f"<details><summary>{title}</summary>", *parts, "</details>"] if parts else []


def _standing(experiment: Experiment, settings: Settings, done: int, planned: int) -> str:
    devices = sorted({each.device for each in experiment.finished})
    budgets = sorted({each.budget for each in experiment.finished})
    told = (
        f"{done} of {planned} runs are done ({', '.join(scale_of(experiment, settings))}, "
        f"attack budget {', '.join(budgets)}, {', '.join(devices)})."
    )
    missing = Counter(cell.method for stored in experiment.studies for cell in stored.missing)
    if missing:
        told += f" Missing: {', '.join(f'{name} ({count})' for name, count in missing.items())}."
    stale = [each for stored in experiment.studies for each in stored.stale]
    told += "".join(f"\n\nNot used: `{each.file}`: {each.reason}." for each in stale)
    return told


def _remarks(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes and cautions, each once."""
    told: dict[str, list[str]] = {}
    for record in records:
        for text in (*record["notes"], *record["cautions"]):
            told.setdefault(text, []).append(f"{record['a']} / {record['b']}")
    lines = [f"- {text}" + (f" ({'; '.join(who)})" if len(who) < len(records) else "") for text, who in told.items()]
    return ["\n".join(lines)] if lines else []


def _volumes(experiment: Experiment, data: str) -> str:
    """Hypervolume of each method's curve: one figure for the whole of it."""
    points = [each.point() for each in experiment.finished if each.data == data]
    methods = compare(points, reference=experiment.reference)["methods"]
    sources: dict[str, list[Row]] = {}
    for row in rows_of(experiment, data):
        sources.setdefault(row.method, []).append(row)
    reference = next(iter(methods.values()))["hypervolume"]["reference"]
    caption = (
        f"Hypervolume: area of (accuracy, MSE) that a seed's curve beats, above accuracy {reference[0]:.4f} and MSE "
        f"{reference[1]:.4f}; it rewards long curves, so compare methods with the same grid only."
    )
    rows = []
    for name, method in methods.items():
        volume = method["hypervolume"]
        told = "–" if volume["ci95"] is None else f"{volume['ci95'][0]:.2e} to {volume['ci95'][1]:.2e}"
        rows.append([name, f"{volume['mean']:.3e}", told, str(len(volume["per_seed"])), sources[name][0].source])
    head = ["method", "hypervolume", "95 % interval", "seeds", "study · config (first setting) · commit"]
    return f"{caption}\n\n{table(head, rows)}"
