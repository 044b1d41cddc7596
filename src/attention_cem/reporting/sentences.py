"""Sentences that stand in the files in English, and their Chinese; an unknown one stays as it is."""

from __future__ import annotations

import re

_NUMBER = r"([-+\d.,%]+(?:e[-+]\d+)?|nan|inf)"
_PATTERNS: tuple[tuple[str, str], ...] = (
    # alarms
    (rf"the surrogate reports {_NUMBER} % less entropy, but the spread of the features changed by {_NUMBER} % in the "
     rf"same {_NUMBER} epochs: the estimator is fooling itself",
     "代理损失报告熵减少了 {0} %，但在同样的 {2} 轮中特征的离散程度变化为 {1} %：估计器在自欺"),
    (rf"the surrogate was shut off on {_NUMBER} of its calls: the model trains without a defence",
     "代理损失在 {0} 的调用中被关闭：模型在没有防御的情况下训练"),
    (rf"the soft gates are closed \(mean {_NUMBER}\)", "软门已关闭（均值 {0}）"),
    (rf"the SNR gates are saturated \(mean {_NUMBER}\)", "SNR 门已饱和（均值 {0}）"),
    (rf"{_NUMBER} slots hold almost no samples", "{0} 个槽几乎没有样本"),
    (rf"the attention has collapsed: it rests on {_NUMBER} samples per class", "注意力已坍缩："
    "每个类别只依赖 {0} 个样本"),
    (r"no class was active: the surrogate did nothing", "没有任何类别处于活动状态：代理损失什么也没做"),
    (rf"nothing is learned: balanced accuracy {_NUMBER} % after {_NUMBER} epochs, {_NUMBER} % is chance; set "
     r"train.lr_warmup_epochs to 1, or give the defence less weight or a longer ramp",
     "什么也没学到：{1} 轮后各类平均准确率为 {0} %，随机猜测即为 {2} %；请把 train.lr_warmup_epochs 设为 1，"
     "或减小防御的权重、延长其爬升"),
    # receipts
    (rf"{_NUMBER} more epochs from a restarted learning rate changed the validation MSE by {_NUMBER} % "
     rf"\(limit {_NUMBER} %\)", "重启学习率再训练 {0} 轮，验证 MSE 变化 {1} %（上限 {2} %）"),
    (rf"the last quarter of the steps changed the best validation MSE by {_NUMBER} % \(limit {_NUMBER} %\)",
     "最后四分之一的步骤使最佳验证 MSE 变化 {0} %（上限 {1} %）"),
    (r"kept its start: refining lowered no validation MSE", "停在起点：改进未降低验证 MSE"),
    (r"no evidence beyond (\S+)", "除 {0} 外没有新证据"),
    (r"not probed: whether more training would help is not known", "未检验：是否继续训练会有帮助尚不清楚"),
    (rf"stuck: validation MSE {_NUMBER}, the mean image alone gives {_NUMBER}",
     "停滞：验证 MSE {0}，仅平均图像就达到 {1}"),
    (rf"stuck: validation MSE {_NUMBER}, (\S+) reaches {_NUMBER} without training",
     "停滞：验证 MSE {0}，{1} 无需训练即达到 {2}"),
    (r"nothing is trained: the setting was chosen among all tried on the attack's own validation images",
     "无需训练：设置是在攻击者自己的验证图像上从所有尝试中选出的"),
    (r"stuck: no step lowered the validation MSE of the mean image", "停滞：没有一步降低平均图像的验证 MSE"),
    (rf"weight of the total variation {_NUMBER}, {_NUMBER} steps", "全变差的权重为 {0}，共 {1} 步"),
    # calibration
    (r"as expected on both clients", "在两个检验客户端上均符合预期"),
    (r"beats the mean image on a constant client", "在恒定客户端上胜过平均图像"),
    (r"does not reach the mean image on a constant client", "在恒定客户端上达不到平均图像"),
    (rf"PSNR {_NUMBER} dB on an identity-like client, {_NUMBER} dB expected",
     "在近似恒等的客户端上 PSNR 为 {0} dB，应达到 {1} dB"),
    (r"no better than the mean image on an identity-like client", "在近似恒等的客户端上不比平均图像好"),
    # headline and warnings
    (r"worst case over attacks with passing receipts", "凭据通过的攻击中的最坏情况"),
    (r"no attack that rebuilds unseen images has a passing receipt: the true worst case may be lower",
     "没有一个能重建未见图像的攻击通过凭据：真实的最坏情况可能更低"),
    (r"the worst case comes from an attack that was still improving: the true one is lower",
     "最坏情况来自一个仍在进步的攻击：真实值更低"),
    (r"a screening audit: one inverter of fixed effort, to choose among many runs; audit the chosen ones with a "
     r"standard or thorough budget",
     "筛选审计：只用一个固定投入的反演攻击，用于在许多运行之间挑选；请用标准或彻底的预算审计选中的运行"),
    (rf"the run is not finished: these are the weights of epoch {_NUMBER}",
     "该运行尚未完成：这里用的是第 {0} 轮的权重"),
    (r"no attack is calibrated: there is no headline", "没有任何攻击通过校准：没有结论数字"),
    (rf"{_NUMBER} of {_NUMBER} test images are also among the attacker's: their MSE is too low",
     "{1} 张测试图像中有 {0} 张也在攻击者手中：其 MSE 偏低"),
    (rf"a short inverter attack alone gives MSE {_NUMBER}, the worst case is {_NUMBER}: a quick audit overrates this "
     rf"client by {_NUMBER} %", "仅用短时反演攻击得到 MSE {0}，最坏情况为 {1}：快速审计将该客户端高估了 {2} %"),
    (rf"([\w-]+): its MSE is {_NUMBER} % lower on the images it was trained on: it learned them by heart, and whoever "
     r"has more images finds more", "{0}：在训练过的图像上 MSE 低 {1} %：它把这些图像背了下来，图像更多的人会找到更多"),
    (r"([\w-]+): under-trained", "{0}：训练不足"),
    (r"([\w-]+): miscalibrated", "{0}：校准失败"),
    (r"([\w-]+): kept its start", "{0}：停在起点"),
    # effort
    (r"no trained attack was run", "没有运行需训练的攻击"),
    (rf"the second half of the attack effort changed the best validation MSE by {_NUMBER} %",
     "攻击投入的后半部分使最佳验证 MSE 变化 {0} %"),
    (rf"the second half of the attack effort changed the best validation MSE by {_NUMBER} %, more than {_NUMBER} %: "
     r"more effort will find more", "攻击投入的后半部分使最佳验证 MSE 变化 {0} %，超过 {1} %：更多投入会发现更多"),
    (rf"the second half of the attack effort changed the best validation MSE by {_NUMBER} %; only a thorough budget "
     r"\(wide inverters, long training, restarts\) can call it settled",
     "攻击投入的后半部分使最佳验证 MSE 变化 {0} %；"
     "只有彻底的预算（更宽的反演网络、长时间训练、多次重启）才能判定为已稳定"),
    # studies
    (rf"not comparable at {_NUMBER} % accuracy: the curves do not both reach it",
     "在准确率 {0} % 处不可比较：两条曲线并未都达到该处"),
    (rf"undecided at {_NUMBER} % accuracy: {_NUMBER} % MSE, but ([\d and]+) seeds? gives? no interval",
     "在准确率 {0} % 处未定：MSE {1} %，但 {2} 个种子给不出区间"),
    (rf"undecided at {_NUMBER} % accuracy: {_NUMBER} % MSE, 95 % CI {_NUMBER} % to {_NUMBER} % \(([\d and]+) seeds, "
     rf"fewer than {_NUMBER}\)",
     "在准确率 {0} % 处未定：MSE {1} %，95 % 区间 {2} % 至 {3} %（{4} 个种子，少于 {5} 个）"),
    *((rf"{outcome} at {_NUMBER} % accuracy: {_NUMBER} % MSE, 95 % CI {_NUMBER} % to {_NUMBER} % \(([\d and]+) seeds\)",
       f"在准确率 {{0}} % 处{chinese}：MSE {{1}} %，95 % 区间 {{2}} % 至 {{3}} %（{{4}} 个种子）")
      for outcome, chinese in (("better", "更好"), ("worse", "更差"), ("no difference(?: shown)?", "未见差别"))),
    (rf"{_NUMBER} of {_NUMBER} runs have no passing receipt: their MSE may be lower than measured",
     "{1} 个运行中有 {0} 个凭据未通过：其 MSE 可能低于测得值"),
    (rf"{_NUMBER} seeds?: at least 3 are needed for a claim", "{0} 个种子：至少需要 3 个才能下结论"),
    (r"the methods have different seeds: the interval is Welch's and wider",
     "两种方法的种子不同：区间为 Welch 区间，更宽"),
    # bounds
    (r"the ([\w-]+) budget computes no bounds", "{0} 预算不计算界"),
    (r"a bound needs two test images or more, there is one", "计算界需要两张或更多测试图像，这里只有一张"),
    (r"a black-box challenge does not hold the client", "黑盒挑战不包含客户端"),
    (r"the defence adds no noise of known density, so what a release tells is not bounded",
     "防御没有加入密度已知的噪声，因此发布内容所泄露的信息没有上界"),
    (r"the noise of (\w+) depends on its input; its density is not known here",
     "{0} 的噪声依赖于输入；此处其密度未知"),
    (rf"{_NUMBER} releases of each image are seen; what they tell together is bounded for Gaussian noise only, with "
     r"nothing random before it", "每张图像有 {0} 次发布可见；合在一起的信息只对高斯噪声、且之前没有随机成分时有界"),
    (rf"of {_NUMBER} releases of each image together", "每张图像的 {0} 次发布合在一起"),
)  # fmt: skip
_PREFIXES = {
    "headline: ": "结论：",
    "not settled: ": "未稳定：",
    "the inverter it starts from had not converged: ": "作为起点的反演攻击尚未收敛：",
}
_BY_CHANCE, _BY_CHANCE_ZH = ", which so few images may by chance", "，但图像这么少，可能出于偶然"


def in_chinese(sentence: str) -> str | None:
    """The Chinese of a sentence of the files, or None for one that is not known.

    >>> in_chinese("2.0 slots hold almost no samples")
    '2.0 个槽几乎没有样本'
    >>> in_chinese("something else") is None
    True
    """
    for prefix, translated in _PREFIXES.items():
        if sentence.startswith(prefix):
            rest = in_chinese(sentence.removeprefix(prefix))
            return None if rest is None else translated + rest
    if sentence.endswith(_BY_CHANCE):
        rest = in_chinese(sentence.removesuffix(_BY_CHANCE))
        return None if rest is None else rest + _BY_CHANCE_ZH
    for pattern, template in _PATTERNS:
        found = re.fullmatch(pattern, sentence)
        if found:
            return template.format(*found.groups())
    parts = sentence.split("; ")
    translated_parts = [in_chinese(part) for part in parts] if len(parts) > 1 else [None]
    known = [part for part in translated_parts if part is not None]
    return "；".join(known) if len(known) == len(parts) else None
