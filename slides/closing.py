"""The end of the talk: what it does not do, and how to begin."""

from __future__ import annotations

from slides.sources import Shelf
from slides.words import Slide, both, bullets, code, columns, commands, paragraph


def limits(shelf: Shelf) -> Slide:
    """What nobody should read into it."""
    cards = (
        (
            "red",
            ("What stays visible", "仍然看得见的"),
            (
                "The class is released: that is the service. An attacker who owns photos of the person can answer with "
                "their average.",
                "类别本来就要给出去，这正是服务本身。手里有此人照片的攻击者，总能拿“平均脸”来交差。",
            ),
            (
                "Asking again and again for one photo averages the noise away.",
                "对同一张照片反复查询，噪声会被平均掉。",
            ),
        ),
        (
            "amber",
            ("What the bounds say", "上界说明了什么"),
            (
                "Nats about the feature under Gaussian noise, on average over images. No promise for a single photo.",
                "高斯噪声下特征平均泄露多少奈特；不对单张照片作保证。",
            ),
            (
                "No differential privacy, unless <code>local_dp</code> is in the stack.",
                "没有差分隐私保证，除非防御里加了 <code>local_dp</code>。",
            ),
        ),
        (
            "blue",
            ("What an audit says", "审计说明了什么"),
            (
                "What these attacks found, with proof that they were tried hard. A cleverer one may find more.",
                "这些攻击找到了什么，并证明已经尽力。更聪明的攻击也许能找到更多。",
            ),
            (
                "“Settled” may only be said by a thorough budget.",
                "只有 thorough 预算才有资格说“已稳定”。",
            ),
        ),
    )
    body = columns(
        *(
            f'<div class="card {colour}"><h3>{both(*head)}</h3>{bullets(*points)}</div>'
            for colour, head, *points in cards
        ),
        kind="three",
    )
    body += paragraph(
        "What is not measured is not claimed: slides without a result file say so.",
        "没测过的就不说：缺少结果文件的页面会直接写明。",
        "lead",
    )
    return Slide("limits", ("Limits", "局限"), ("What it does not do", "它做不到什么"), body)


def start(shelf: Shelf) -> Slide:
    """Commands that work on a bare machine, and where to read on."""
    verbs = commands(
        ("make demo", "two models, attacked, one page", "两个模型，攻击之后给出一页报告"),
        ("make test", "every test", "全部测试"),
        ("python examples/plain_loop.py", "", ""),
        ("attention-cem train \\", "", ""),
        ("    --config configs/synthetic-sound.toml", "", ""),
    )
    own = code(
        """
from attention_cem import SlotMixtureCEM
from attention_cem import backward_at_cut, detach_at_cut

surrogate = SlotMixtureCEM(feature_dim, num_classes)
feature = detach_at_cut(z)
out = surrogate(feature, y)
backward_at_cut(z, feature, task_loss, out.rob_loss,
                lambd=0.3, estimator=surrogate)
"""
    )
    ways = bullets(
        (
            "<b>Own loop, Lightning, Hugging Face, torchrun:</b> <code>examples/</code>, each under a minute",
            "<b>自己的循环、Lightning、Hugging Face、torchrun：</b><code>examples/</code>，每个一分钟内跑完",
        ),
        (
            "<b>Own defence or surrogate:</b> 40 lines, certified by the shipped base test",
            "<b>自己的防御或代理损失：</b>40 行，用随库附带的基础测试认证",
        ),
        (
            "<b>A model of others:</b> <code>attack_own_checkpoint.py</code> attacks it and prints the receipts",
            "<b>别人的模型：</b><code>attack_own_checkpoint.py</code> 负责攻击并打印凭据",
        ),
        (
            "<b>Handbook,</b> English and 中文: <code>make docs</code>",
            "<b>手册</b>（中英双语）：<code>make docs</code>",
        ),
    )
    body = columns(f"{verbs}<br>{own}", ways)
    return Slide("start", ("Start", "上手"), ("How to start", "怎么开始"), body, ["README.md", "examples/README.md"])
