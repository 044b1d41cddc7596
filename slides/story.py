"""The first half of the talk: the problem, the idea, the class-room picture, the four stages."""

from __future__ import annotations

from slides import drawings
from slides.sources import Shelf
from slides.words import Slide, both, bullets, columns, paragraph

PROBLEM, IDEA, METHOD = ("The problem", "问题"), ("The idea", "思路"), ("The method", "方法")


def picture(shelf: Shelf, name: str, caption: tuple[str, str], kind: str = "") -> tuple[str, list[str]]:
    """A figure of the handbook with its caption, and its source; where it is missing, a note that says so."""
    found = shelf.figure(name)
    if found is None:
        return missing(f"docs/assets/understand/{name}.svg", f"python -m docs.figures {name}"), []
    shape = f' class="{kind}"' if kind else ""
    image = f'<img{shape} src="{found.uri}" alt="{caption[0]} · {caption[1]}">'
    return f"<figure>{image}<figcaption>{both(*caption)}</figcaption></figure>", [found.source]


def missing(file: str, command: str) -> str:
    """What a slide shows in place of numbers that are not there: never a typed one."""
    told = both(
        f"<b>Not there yet:</b> <code>{file}</code>. This slide fills itself when <code>{command}</code> has been run "
        "and the deck is built again.",
        f"<b>暂缺：</b><code>{file}</code>。运行 <code>{command}</code> 后重新生成幻灯片，本页会自动补全。",
    )
    return f'<div class="missing">{told}</div>'


def title(shelf: Shelf) -> Slide:
    """What it is, in one line and one sketch."""
    lead = paragraph(
        "Split inference whose feature z tells the class and little else, attacked honestly, ready to ship.",
        "协同推理里，让传出去的特征 z 只说明类别、几乎不透露别的；用诚实的攻击来检验；两半模型都能直接部署。",
        "lead",
    )
    keys = paragraph(
        "→ next &nbsp; ← back &nbsp; L 中文 &nbsp; F full screen &nbsp; printing gives a PDF",
        "→ 下一页 &nbsp; ← 上一页 &nbsp; L English &nbsp; F 全屏 &nbsp; 打印即得 PDF",
        "note",
    )
    body = columns(lead + keys, drawings.who_sends_what())
    heading = ("Send a feature, not a face.", "发出去的是特征，不是脸。")
    return Slide("title", ("Attention-CEM", "Attention-CEM · 组会"), heading, body)


def problem(shelf: Shelf) -> Slide:
    """What an inverter makes of z."""
    caption = (
        "True images x, and what the best linear attacker rebuilds from z",
        "第一行是原图 x，下面是最优线性攻击者由 z 还原的结果",
    )
    image, sources = picture(shelf, "leak", caption, "high")
    found = shelf.figure("leak")
    told = ""
    if found is not None:
        runs = sorted(found.numbers.items(), key=lambda each: float(each[0]))
        told = bullets(
            *(
                (
                    f"λ = {name}: SSIM {run['ssim']:.2f}, PSNR {run['psnr']:.1f} dB, accuracy {run['accuracy']:.1%}",
                    f"λ = {name}：SSIM {run['ssim']:.2f}，PSNR {run['psnr']:.1f} dB，准确率 {run['accuracy']:.1%}",
                )
                for name, run in runs
            )
        )
    text = paragraph(
        "The device sends z instead of the photo. Whoever sees z trains a network that maps z back to x: <b>model "
        "inversion</b>.",
        "设备发出去的是 z 而不是照片。但看到 z 的人可以训练一个网络，把 z 映射回 x，这就是<b>模型反演攻击</b>。",
    )
    small = paragraph(
        "A small run on drawn images, one seed: an illustration, not evidence.",
        "合成图像上的小实验，单一随机种子：只作示意，不作证据。",
        "note",
    )
    body = columns(text + told + small, image)
    heading = ("Whoever sees z can rebuild the photo", "看到 z 的人，就能还原照片")
    return Slide("problem", PROBLEM, heading, body, sources)


def idea(shelf: Shelf) -> Slide:
    """H(z|y) down, the best attacker's error up."""
    caption = (
        "z of four classes along two axes, without and with the surrogate",
        "四个类别的 z（两个主轴）：不用与使用代理损失",
    )
    image, sources = picture(shelf, "clouds", caption, "low")
    text = paragraph(
        "A sample's place <b>inside its class's cloud</b> is what an attacker reads beyond the class. Make the clouds "
        "compact compared with the noise σ, and there is little left to read.",
        "样本在<b>本类点云内部</b>的位置，正是攻击者在类别之外还能读到的东西。让点云相对噪声 σ 足够紧凑，"
        "能读的就所剩无几。",
    )
    formulas = (
        '<div class="formula">H(x | ẑ) = H(x) − I(z ; ẑ)</div>'
        '<div class="formula">ξ ≥ exp(2 · H(x | ẑ) / d) / 2πe</div>'
        '<div class="formula small">I(z ; ẑ) ≤ Σ<sub>k</sub> π<sub>k</sub> ( −log π<sub>k</sub> + ½ log '
        "|Σ<sub>k</sub> + Σ<sub>p</sub>| / |Σ<sub>p</sub>| )</div>"
    )
    note = paragraph(
        "ẑ = z + noise; ξ: mean squared error of any attacker on d pixels. Xia et al., CVPR 2025, arXiv 2503.00383, "
        "Theorems 1 and 2.",
        "ẑ = z + 噪声；ξ：任何攻击者在 d 个像素上的均方误差。Xia 等，CVPR 2025，arXiv 2503.00383，定理 1、2。",
        "note",
    )
    body = columns(text + formulas + note, image)
    heading = ("A lower H(z | y) raises the floor under the attacker's error", "压低 H(z | y)，攻击者的误差下限就升高")
    return Slide("idea", IDEA, heading, body, sources)


def class_room(shelf: Shelf) -> Slide:
    """Captains and roll call."""
    text = bullets(
        (
            "A <b>class</b> of the data is a school class; a <b>sample</b> is a pupil, seated at its z.",
            "数据的一个<b>类别</b>就是一个班；一个<b>样本</b>就是一名学生，座位就是它的 z。",
        ),
        (
            "<b>Captains</b> (slots) are elected in rounds: each ends up in the middle of a group that sits together.",
            "<b>队长</b>（槽）由多轮互动选出：每位队长最终站在一小群同学的中间。",
        ),
        (
            "The <b>roll call</b> (gated attention) skips groups: each pupil gets a weight, the class is one crowd.",
            "<b>点名</b>（门控注意力）不分小组：给每个学生一个权重，把全班当成一个整体来看。",
        ),
        (
            "Then both ask: <b>how far do pupils sit from their centre?</b> Too far, and the class pays.",
            "接下来两种办法问同一个问题：<b>大家离中心有多远？</b>坐得太散，全班就要扣分。",
        ),
    )
    body = columns(text, drawings.class_room())
    return Slide("class-room", METHOD, ("The class-room picture", "教室里的比喻：选队长与点名"), body)


def four_stages(shelf: Shelf) -> Slide:
    """The slot surrogate as its documents state it."""
    stages = (
        (
            ("1 · Elect captains", "1 · 选队长"),
            ("Slot attention over the samples of one class, several rounds.", "对同一类的样本做多轮槽注意力。"),
            "a = softmax<sub>k</sub>(k<sub>n</sub> · q<sub>k</sub>)<br>s ← GRU(Σ a v, s)",
        ),
        (
            ("2 · Learn from them", "2 · 向队长取经"),
            ("Gated cross-attention: each sample borrows from the slots.", "门控交叉注意力：每个样本向各个槽借经验。"),
            "x̃ = x + tanh(α) · attn(x, S)",
        ),
        (
            ("3 · Is the group tight?", "3 · 站得齐不齐"),
            (
                "Variance of each slot's group; gates decide which variances count.",
                "统计每个槽所辖小组的方差，再由几道门决定哪些方差算数。",
            ),
            "ψ = g<sub>soft</sub> · g<sub>SNR</sub> · φ(log σ²)",
        ),
        (
            ("4 · Add up the classes", "4 · 按类汇总"),
            ("Classes weighted by their share of the batch.", "各类按在批中的占比加权，得到损失。"),
            "rob_loss = Σ<sub>c</sub> p<sub>c</sub> g<sub>c</sub> L<sub>c</sub>",
        ),
    )
    cards = columns(
        *(
            f'<div class="card"><h3>{both(*head)}</h3><div class="p">{both(*words)}</div>'
            f'<div class="formula small">{formula}</div></div>'
            for head, words, formula in stages
        ),
        kind="pairs",
    )
    caption = (
        "Four slots of one class, round t: the captains find their groups",
        "同一类的四个槽，第 t 轮：队长各自找到自己的小组",
    )
    image, sources = picture(shelf, "captains", caption)
    heading = ("Four stages from (z, y) to one loss", "四个阶段：从 (z, y) 到一个损失")
    return Slide("four-stages", METHOD, heading, columns(cards, image, kind="wide-left"), sources)
