"""What a visitor wants to know, and the comparison that answers each question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attention_cem.studies.verdicts import BETTER, ENOUGH_SEEDS, SAME, UNDECIDED, WORSE
from studies.publish_comparisons import Compared
from studies.publish_proven import all_pass, on_receipts
from studies.publish_reading import Experiment
from studies.publish_settings import Settings
from studies.publish_tables import NOTHING, interval, table, verdict_across


@dataclass(frozen=True)
class Question:
    """A question in both languages, and the comparison that answers it.

    Args:
        key: the comparison.
        words, words_zh: the question.
        data: the data set; empty for the first.
        front: whether it stands on the front page, beside the index.
        proof: whether answers by attacks whose receipts can pass stand below it.
    """

    key: str
    words: str
    words_zh: str
    data: str = ""
    front: bool = True
    proof: bool = False


QUESTIONS = (
    Question(
        "sound_mirrored_vs_kmeans_best_mirrored",
        "The default recipe against k-means CEM, trained alike",
        "默认做法对 k-means CEM，训练方式相同",
        proof=True,
    ),
    Question(
        "sound_attention_mirrored_vs_kmeans_best_mirrored",
        "The same with attention in it, against k-means CEM",
        "默认做法加上注意力，对 k-means CEM",
        proof=True,
    ),
    Question(
        "sound_attention_mirrored_vs_sound_mirrored",
        "What attention adds: against random features in its place",
        "注意力自身的贡献：对以随机特征代替注意力",
    ),
    Question(
        "sound_attention_mirrored_vs_blind_kmeans_constant_mirrored",
        "What is left without the blind client: against k-means CEM behind the same one",
        "除去盲客户端之后：对用同一盲客户端的 k-means CEM",
        proof=True,
    ),
    Question(
        "slots_vs_kmeans_best",
        "Slot attention as the estimator of H(z|y), against k-means CEM at its best",
        "以槽注意力估计 H(z|y)，对最好的 k-means CEM",
    ),
    Question(
        "sound_vs_kmeans_best",
        "Faces (LFW, 158 people), against k-means CEM at its best",
        "人脸（LFW，158 人），对最好的 k-means CEM",
        data="lfw158",
    ),
    Question(
        "sound_mirrored_vs_kmeans_best_mirrored",
        "Faces, mirrored edges: the default recipe against k-means CEM",
        "人脸，镜像边缘：默认做法对 k-means CEM",
        data="lfw158",
        proof=True,
    ),
    Question(
        "blind_kmeans_constant_mirrored_vs_kmeans_constant_mirrored",
        "Faces: what the blind client alone gives k-means CEM, with it against without",
        "人脸：单是盲客户端给 k-means CEM 的增益，用与不用相比",
        data="lfw158",
        proof=True,
    ),
    Question(
        "sound_mirrored_vs_kmeans_best_mirrored",
        "CIFAR-100, 100 classes: the default recipe against k-means CEM, trained alike",
        "CIFAR-100，100 类：默认做法对 k-means CEM，训练方式相同",
        data="cifar100",
    ),
    Question(
        "sound_mirrored_vs_kmeans_best_mirrored",
        "CIFAR-100, 20 coarse classes: the default recipe against k-means CEM, trained alike",
        "CIFAR-100，20 个粗类：默认做法对 k-means CEM，训练方式相同",
        data="cifar100_coarse",
        proof=True,
    ),
    Question(
        "sound_attention_mirrored_vs_kmeans_best_mirrored",
        "CIFAR-100, 20 coarse classes: the recipe with attention against k-means CEM",
        "CIFAR-100，20 个粗类：带注意力的做法对 k-means CEM",
        data="cifar100_coarse",
        proof=True,
    ),
    Question(
        "sound_vs_kmeans_best",
        "Tiny-ImageNet, 20 classes, against k-means CEM at its best",
        "Tiny-ImageNet，20 类，对最好的 k-means CEM",
        data="tinyimagenet20",
    ),
    Question(
        "sound_vs_kmeans_best",
        "Crops with black edges, as published: against k-means CEM at its best",
        "裁剪边缘填黑，同原文：对最好的 k-means CEM",
        proof=True,
    ),
    Question(
        "sound_vs_kmeans_published",
        "With black edges, against k-means CEM exactly as published",
        "黑色边缘，对完全按原文的 k-means CEM",
    ),
    Question("sound_vs_noise", "With black edges, against noise alone", "黑色边缘，对只加噪声"),
    Question(
        "sound_vs_kmeans_best",
        "CIFAR-100, 100 classes, black edges, against k-means CEM at its best",
        "CIFAR-100，100 类，黑色边缘，对最好的 k-means CEM",
        data="cifar100",
    ),
    Question(
        "sound_attention_mirrored_vs_sound_mirrored",
        "What attention adds on 20 coarse classes: against random features in its place",
        "20 个粗类上注意力自身的贡献：对以随机特征代替注意力",
        data="cifar100_coarse",
        front=False,
        proof=True,
    ),
    Question(
        "sound_attention_mirrored_vs_blind_kmeans_constant_mirrored",
        "20 coarse classes, without the blind client: against k-means CEM behind the same one",
        "20 个粗类，除去盲客户端之后：对用同一盲客户端的 k-means CEM",
        data="cifar100_coarse",
        front=False,
        proof=True,
    ),
    Question(
        "sound_vs_kmeans_best",
        "CIFAR-100, 20 coarse classes, black edges, against k-means CEM at its best",
        "CIFAR-100，20 个粗类，黑色边缘，对最好的 k-means CEM",
        data="cifar100_coarse",
        front=False,
    ),
    Question(
        "blind_sound_vs_blind_kmeans_best",
        "With black edges, both behind the same blind client",
        "黑色边缘，双方都用同一盲客户端",
        front=False,
    ),
    Question(
        "sound_abrupt_vs_kmeans_best",
        "Our first recipe, one of whose runs never learned, against k-means CEM at its best",
        "最初的做法（有一次运行什么也没学到）对最好的 k-means CEM",
        front=False,
    ),
    Question(
        "attention_vs_kmeans_best",
        "A closed-form attacker with attention alone, against k-means CEM at its best",
        "只用带注意力的闭式攻击者，对最好的 k-means CEM",
        front=False,
    ),
    Question(
        "sound_slots_vs_sound",
        "What the slot estimator adds to ours: with it against without",
        "槽估计为我们的方法增添多少：加与不加相比",
        front=False,
    ),
)
"""In the order of the pages; those that no result answers are left out."""
BEYOND = "beyond its own runs"
AT_THE_END = "where its own runs end"
CHINESE_LIMITS = {
    "not by SSIM": "，按 SSIM 则不然",
    BEYOND: "，已超出其自身运行",
    "at no other accuracy": "，仅在该准确率",
    AT_THE_END: "，恰在其自身运行的末端",
}
_REACH = re.compile(r"from ([\d.]+) to ([\d.]+) %")
CHINESE_OUTCOMES = {BETTER: "更好", WORSE: "更差", SAME: "未见差别", UNDECIDED: "未定"}
HEAD = ["compared", "MSE ratio (95 % interval)", "finer waves", "at accuracy", "verdict", "evidence"]
HEAD_ZH = ["比较", "MSE 之比（95 % 区间）", "较细的波", "准确率", "结论", "依据"]
FINER = (
    "Finer waves: the same ratio without the 4×4 slowest waves of an image, its brightness and largest shapes, which a "
    "blind client does not see; mean over the seeds, no interval.",
    "较细的波：不计图像中最慢的 4×4 个波（明暗与最大的形状，盲客户端看不到它们）的同一比值；各种子平均，无区间。",
)
USUAL = ("Where the evidence says nothing else: {}.", "依据中未注明者为：{}。")
_COMMA = (", ", "，")
ENDS = (
    "Where its own runs end: at the accuracy of the first's most accurate runs. Beyond them: higher up, where it is "
    "read as if part of the images went through the undefended run.",
    "恰在其自身运行的末端：在前者最准确的运行所及之处比较。已超出其自身运行：比较点更高，前者按部分图像经由不加防御的那次运行计算。",
)


@dataclass(frozen=True)
class Answer:
    """A question, what speaks for its data set, and what other studies found by attacks whose receipts can pass."""

    asked: Question
    data: str
    record: Mapping[str, Any] | None
    proofs: Sequence[Mapping[str, Any]]

    def records(self) -> list[Mapping[str, Any]]:
        """The answer and its proofs, as far as there are any."""
        return [record for record in (self.record, *self.proofs) if record is not None]


def answers_to(
    questions: Sequence[Question],
    compared: Sequence[Compared],
    comparisons: Mapping[str, Mapping[str, Any]],
    first_data: str,
) -> list[Answer]:
    """The questions that results answer."""
    found = []
    for asked in questions:
        data = asked.data or first_data
        record = comparisons.get(data, {}).get(asked.key)
        spoken_for = None if record is None else record["study"]
        shown = on_receipts(compared, data, asked.key) if asked.proof else []
        found.append(Answer(asked, data, record, [each for each in shown if each["study"] != spoken_for]))
    return [answer for answer in found if answer.records()]


def answers_table(
    answers: Sequence[Answer], scales: Mapping[str, Sequence[str]], *, chinese: bool = False, brief: bool = False
) -> str:
    """A row an answer, below it what was found on receipts; then what a mark in it means.

    ``brief``: what most studies share is said once, below, and strengths are left to the index.
    """
    every = [_evidence(record, scales, chinese) for answer in answers for record in answer.records()]
    usual = [Counter(parts).most_common(1)[0][0] for parts in zip(*every, strict=True)] if brief else []
    rows = []
    for answer in answers:
        question = answer.asked.words_zh if chinese else answer.asked.words
        if answer.record is not None:
            rows.append(_row(question, answer.record, scales, usual, chinese))
        for record in answer.proofs:
            begins = "" if answer.record is not None else f"{question} "
            rows.append(_row(f"{begins}{_receipts_words(record, chinese)}", record, scales, usual, chinese))
    below = [FINER[chinese]] if any(_finer(record) for answer in answers for record in answer.records()) else []
    below += [USUAL[chinese].format((_COMMA[chinese]).join(usual))] if usual else []
    verdicts = " ".join(verdict_across(record) for answer in answers for record in answer.records())
    below += [ENDS[chinese]] if BEYOND in verdicts or AT_THE_END in verdicts else []
    return "\n\n".join([table(HEAD_ZH if chinese else HEAD, rows), *below])


def names_table(answers: Sequence[Answer]) -> str:
    """Which methods and which study each answer is of, in both languages."""
    head = ["question", "methods", "data", "study"]
    return table(
        head,
        (
            [
                f"{answer.asked.words}<br>{answer.asked.words_zh}",
                f"`{side_name(record, 'a')}` / `{side_name(record, 'b')}`",
                answer.data,
                f"`{record['study']}`",
            ]
            for answer in answers
            for record in answer.records()
        ),
    )


def scale_of(experiment: Experiment, settings: Settings, *, chinese: bool = False) -> tuple[str, str, str]:
    """Network, training images and epochs of a study: what its figures are figures of."""
    configs = [each.cell.config for each in experiment.finished]
    networks = "/".join(dict.fromkeys(config.model.name for config in configs))
    known = [config.data.limit or settings.training_images.get(config.data.name) for config in configs]
    counts = list(dict.fromkeys(known)) or [None]
    if chinese:
        images = "/".join(f"{count:,} 张" if count else "全部" for count in counts)
        return networks, f"{images}图像", f"{experiment.epochs} 轮"
    images = "/".join(f"{count:,}" if count else "all" for count in counts)
    return networks, f"{images} images", f"{experiment.epochs} epochs"


def side_name(record: Mapping[str, Any], side: str) -> str:
    """The method, by its own name where an envelope has only one to choose from."""
    methods = record["methods"][side]
    return str(methods[0] if len(methods) == 1 else record[side])


def chinese_verdict(record: Mapping[str, Any]) -> str:
    """The verdict and how far it holds."""
    whole = verdict_across(record)
    limits = "".join(chinese for english, chinese in CHINESE_LIMITS.items() if english in whole)
    if reach := _REACH.search(whole):
        limits += f"，自 {reach[1]} 至 {reach[2]} %"
    return f"{CHINESE_OUTCOMES[record['outcome']]}{limits}"


def _row(
    question: str, record: Mapping[str, Any], scales: Mapping[str, Sequence[str]], usual: Sequence[str], chinese: bool
) -> list[str]:
    """``usual``: what need not be said again; with it, strengths, which the index alone has, are left out too."""
    ends = interval(record["ci95"], at_least=record["at_least"], digits=2)
    gain, accuracy = f"{_gain(record)} ({ends})", f"{100 * record['accuracy']:.1f} %"
    if chinese:
        ends = ends.replace(" to ", " 至 ").replace("above", "大于").replace("none (one seed)", "无：仅一个种子")
        gain = f"{_gain(record)}（{ends}）"
    colon = "：" if chinese else ": "
    parts = _evidence(record, scales, chinese)
    told = _COMMA[chinese].join(part for number, part in enumerate(parts) if not usual or part != usual[number])
    evidence = f"`{record['study']}`{colon if told else ''}{told}"
    if not usual:
        evidence += f"; {_strengths(record)}"
    verdict = chinese_verdict(record) if chinese else verdict_across(record)
    return [question, gain, _finer(record) or NOTHING, accuracy, verdict, evidence]


def _finer(record: Mapping[str, Any]) -> str:
    """The ratio without the slowest waves; empty where it is not known."""
    return "" if record["finer_gain"] is None else f"{record['finer_gain']:.2f}×"


def _evidence(record: Mapping[str, Any], scales: Mapping[str, Sequence[str]], chinese: bool) -> list[str]:
    """How large the study is, how many seeds it has and how it attacks: as many parts for every answer."""
    seeds = f"{record['seeds']} seed{'s' * (record['seeds'] != 1)}"
    audit = audit_words(record)
    if chinese:
        seeds, audit = f"{record['seeds']} 个种子", audit_words(record, chinese=True)
    return [*scales[record["study"]], seeds, audit]


def audit_words(record: Mapping[str, Any], *, chinese: bool = False) -> str:
    """How a comparison's runs were attacked, and how many of them without augmented images."""
    without, runs = record["receipts"]["runs"] - record["augmented"], record["receipts"]["runs"]
    part = f"{without} of {runs} " * (without < runs)
    if chinese:
        told = f"{'、'.join(record['budgets'])} 审计"
        return f"{told}（{f'{runs} 次中 {without} 次' * (without < runs)}无增广图像）" if without else told
    return f"{' and '.join(record['budgets'])} audit" + f", {part}without augmented images" * bool(without)


def _strengths(record: Mapping[str, Any]) -> str:
    """How strong the runs of both sides are that were read, the mildest and the strongest."""
    sides = (record["read_from"][side] for side in "ab")
    return " against ".join(_from_to(side) if side else "undefended" for side in sides)


def _from_to(strengths: Sequence[str]) -> str:
    """
    >>> _from_to(["weight 0.5", "weight 1"]), _from_to(["λ 3"])
    ('weight 0.5 to 1', 'λ 3')
    """
    first, last = strengths[0], strengths[-1]
    if first == last:
        return first
    kind, _, value = last.rpartition(" ")
    return f"{first} to {value}" if first.startswith(kind) else f"{first} to {last}"


def _receipts_words(record: Mapping[str, Any], chinese: bool) -> str:
    """Which of the answer's receipts pass, in the place of its question."""
    passed, runs = record["receipts"]["passed"], record["receipts"]["runs"]
    if all_pass(record):
        return "……凭据全部通过" if chinese else "… on passing receipts"
    if chinese:
        return f"……{runs} 张凭据中 {passed} 张通过"
    return f"… on receipts, of which {passed} of {runs} pass"


def _gain(record: Mapping[str, Any]) -> str:
    """The ratio; bold where it is a difference, and enough seeds stand behind it."""
    told = f"{'≥ ' * record['at_least']}{record['mse_gain']:.2f}×"
    return f"**{told}**" if record["seeds"] >= ENOUGH_SEEDS and record["outcome"] in (BETTER, WORSE) else told
