"""The middle of the talk: what goes wrong as written, the sound version, the merge at the cut, the audit."""

from __future__ import annotations

from html import escape
from statistics import fmean

from attention_cem.attacks.receipts import CONVERGENCE_TOLERANCE
from attention_cem.auditing.calibration import NEAR_PERFECT_PSNR, REACH_TOLERANCE
from slides import charts, drawings
from slides.sources import Shelf
from slides.story import METHOD, missing, picture
from slides.words import Pair, Slide, both, bullets, code, columns, paragraph

REBUILT = "results/figures/rebuilt-small-cifar10.png"
RECIPE = ("The default recipe", "默认做法")
WRONG, AUDIT = ("What goes wrong", "问题出在哪里"), ("The audit", "审计")
SOUND = ("The sound surrogate", "可靠的代理损失")


def shut_off(shelf: Shelf) -> Slide:
    """Defect one: the gate that closes the whole surrogate."""
    heading = ("It shuts itself off, and nobody notices", "自己把自己关断，却没人发觉")
    why = (
        "The documents switch rob_loss off while the mean “SNR” gate is high. Features are layer-normed, so their "
        "means are near 0, σ²/μ² is large, and <b>the gate can stay high for ever</b>.",
        "原文档规定：“SNR 门”均值偏高时就关断 rob_loss。可特征做过层归一化，均值接近 0，σ²/μ² 很大，"
        "于是<b>门可能永远偏高</b>。",
    )
    ours = (
        "We keep it as preset <code>seed</code>, report the shut-off share, and the alarm says it in words.",
        "我们把它保留为 <code>seed</code> 预设，报告关断比例，并由警报直接用文字说出来。",
    )
    found = shelf.figure("gates")
    if found is None:
        note = missing("docs/assets/understand/gates.json", "python -m docs.figures gates")
        return Slide("shut-off", WRONG, heading, columns(bullets(why, ours), note))
    runs, limit = found.numbers["runs"], float(found.numbers["early_hard_thresh"])
    above = sum(run["snr_gate_mean"][-1] > limit for run in runs.values())
    points = [
        why,
        (
            f"In {above} of {len(runs)} small trainings the gate ends above the limit: training goes on, the log looks "
            "fine, nothing is defended.",
            f"{len(runs)} 次小训练里有 {above} 次，门到最后仍高于界限：训练照常、日志正常，却毫无防护。",
        ),
    ]
    sources = [found.source]
    studied = shut_in_studies(shelf)
    if studied is not None:
        points.append(studied)
        sources.append(shelf.cite("results/summary.json"))
    series = [
        charts.Series(name, [(x, y, f"{y:.3f}") for x, y in zip(run["epoch"], run["snr_gate_mean"], strict=True)])
        for name, run in runs.items()
    ]
    chart = charts.scatter(
        series,
        ("epoch (dotted: above it the loss is off)", "轮次（点线以上：损失被关断）"),
        ("mean of the SNR gate", "SNR 门的均值"),
        ("The SNR gate in small trainings", "小训练中的 SNR 门"),
        level=limit,
    )
    return Slide("shut-off", WRONG, heading, columns(bullets(*points, ours), chart), sources)


def shut_in_studies(shelf: Shelf) -> Pair | None:
    """Share of the active steps on which the documents' slot surrogate was off, over all its stored runs, if any."""
    summary = shelf.data("results/summary.json") or {}
    cells = [
        cell
        for cell in summary.get("cells", [])
        if str(cell["method"]).startswith("seed_slot") and cell.get("shutoff_share") is not None
    ]
    if not cells:
        return None
    share = fmean(float(cell["shutoff_share"]) for cell in cells)
    names = escape(", ".join(sorted({str(cell["study"]) for cell in cells})))
    return (
        f"In the studies ({names}): off on {share:.0%} of the steps on which it should have worked, {len(cells)} runs.",
        f"在正式研究（{names}）里：本该起作用的步数中有 {share:.0%} 处于关断状态，共 {len(cells)} 次训练。",
    )


def talked_down(shelf: Shelf) -> Slide:
    """Defect two: an estimator that minimises the penalty it measures."""
    heading = ("It talks the penalty down instead of the leak", "压低的是惩罚，不是泄露")
    points = [
        (
            "The attention's own parameters are trained to make the penalty small. So they learn to <b>look away</b>: "
            "gates close, weights rest on one sample.",
            "注意力自身的参数也朝“惩罚变小”的方向训练，于是它学会了<b>视而不见</b>：门关上，权重压到一个样本上。",
        )
    ]
    caption = (
        "Weights a of one class under gated pooling: at the start, trained on the penalty, trained against it",
        "门控池化下同一类的权重 a：训练前、按惩罚训练、按对抗目标训练",
    )
    image, sources = picture(shelf, "roll_call", caption, "strip")
    found = shelf.figure("talk_down")
    if found is None:
        note = missing("docs/assets/understand/talk_down.json", "python -m docs.figures talk_down")
        return Slide("talked-down", WRONG, heading, columns(bullets(*points), note + image), sources)
    runs = found.numbers["runs"]
    for name, run in runs.items():
        if name != "slot_mixture":
            left = run["rob_loss"][-1] / run["rob_loss"][0]
            share = f"{left:.0%}" if left >= 0.005 else "< 1%"
            points.append(
                (
                    f"<code>{name}</code> reports {share} of its first value after {run['step'][-1]} steps",
                    f"<code>{name}</code>：{run['step'][-1]} 步之后只报告最初值的 {share}",
                )
            )
    last, truth = runs["slot_mixture"]["rob_loss"][-1], found.numbers["true_nats_per_dim"]
    points.append(
        (
            f"<code>slot_mixture</code> reports {last:.3f} nats; the truth is {truth:.3f}",
            f"<code>slot_mixture</code> 报告 {last:.3f} 奈特；真实值是 {truth:.3f}",
        )
    )
    series = [charts.Series(name, _as_share(run)) for name, run in runs.items()]
    chart = charts.scatter(
        series,
        ("steps in which only the estimator learns; z stays", "只有估计器在学习的步数（z 不变）"),
        ("reported / first", "报告值 / 最初值"),
        ("What an estimator reports of features that do not change", "特征不变时估计器的报告值"),
        height=400,
    )
    body = columns(bullets(*points), f'<div class="half">{chart}</div>{image}')
    return Slide("talked-down", WRONG, heading, body, [found.source, *sources])


def _as_share(run: dict[str, list[float]]) -> list[tuple[float, float, str]]:
    """rob_loss over steps as a share of its first value above zero; a memory is empty at first."""
    points = [(x, y) for x, y in zip(run["step"], run["rob_loss"], strict=True) if y > 0]
    first = points[0][1]
    return [(x, y / first, f"{y:.3g} at step {x}") for x, y in points]


def sound(shelf: Shelf) -> Slide:
    """Attention assigns, geometry measures, likelihood teaches."""
    rules = (
        (
            ("Attention assigns", "注意力只管分配"),
            ("which slot a remembered sample belongs to, nothing else.", "记忆里的样本归哪个槽，仅此而已。"),
        ),
        (
            ("Geometry measures", "几何负责度量"),
            (
                "raw z, in units of the noise: shrinking z lowers the loss, as it should.",
                "直接量原始 z，以噪声为单位：z 缩小，损失就下降，理应如此。",
            ),
        ),
        (
            ("Likelihood teaches", "似然负责教学"),
            (
                "b is a normalised density fitted on other samples, so a better estimator only tightens the bound.",
                "b 是在别的样本上拟合的归一化密度，估计器学得越好，上界只会越紧。",
            ),
        ),
    )
    colours = ("", "green", "blue")
    cards = columns(
        *(
            f'<div class="card {colour}"><h3>{both(*head)}</h3><div class="p">{both(*words)}</div></div>'
            for (head, words), colour in zip(rules, colours, strict=True)
        ),
        kind="three",
    )
    formula = (
        '<div class="formula">E[rob_loss] = E[ −log b(ẑ | y) ] / D − ½ log(2πe σ<sub>p</sub>²) '
        "&nbsp;≥&nbsp; I(z ; ẑ | y) / D</div>"
    )
    scale, first = picture(
        shelf,
        "scale",
        ("rob_loss of c · z: it must fall when z shrinks", "c · z 的 rob_loss：z 缩小时理应下降"),
        "flat",
    )
    few, second = picture(
        shelf,
        "few_samples",
        ("Classes that take part when a batch has few of each", "每类样本很少时，真正参与的类别比例"),
        "flat",
    )
    heading = ("SlotMixtureCEM: an upper bound for any parameters", "SlotMixtureCEM：任何参数下都是有效上界")
    return Slide("sound", SOUND, heading, cards + formula + columns(scale, few), [*first, *second])


def recipe(shelf: Shelf) -> Slide:
    """The default for photos, which the results call sound: what it is, and what came back."""
    text = bullets(
        (
            "<b>Blind client:</b> the slowest waves of an image, its brightness and largest shapes, are taken out "
            "before the first layer.",
            "<b>盲客户端：</b>图像最慢的波，即亮度和最大的轮廓，在第一层之前就去掉。",
        ),
        (
            "<b>Closed-form attacker:</b> the best linear map from z to x; the loss is the share of x it recovers.",
            "<b>闭式攻击者：</b>从 z 到 x 的最优线性映射；损失就是它能还原的 x 的份额。",
        ),
        (
            "In the results: <code>sound</code>; <code>sound_attention</code> where the attacker attends. "
            "SlotMixtureCEM is <code>slots</code> there.",
            "在结果里叫 <code>sound</code>；攻击者用注意力时叫 <code>sound_attention</code>。SlotMixtureCEM 在那里叫 "
            "<code>slots</code>。",
        ),
    )
    caption = (
        "Drawn faces, their 4×4 slowest waves, and the rest: what the client sees",
        "画出来的脸、其中 4×4 个最慢的波、剩下的部分：客户端看到的",
    )
    image, sources = picture(shelf, "waves", caption, "flat")
    rebuilt, seen = shelf.picture(REBUILT), ""
    if rebuilt is not None:
        words = (
            "Photos, and what the strongest attack rebuilt; at the left accuracy and error of a run. A small network.",
            "原照片与最强攻击的还原结果；左端是每次运行的准确率与误差。小网络。",
        )
        seen = f'<figure><img class="flat" src="{rebuilt}" alt="{" · ".join(words)}">'
        seen += f"<figcaption>{both(*words)}</figcaption></figure>"
        sources = [*sources, shelf.cite(REBUILT)]
    heading = (
        "Measured best on photos: see less, and train against an attacker",
        "照片上实测最好：少看一些，并对着攻击者训练",
    )
    return Slide("recipe", RECIPE, heading, columns(text, image) + seen, sources)


def merge(shelf: Shelf) -> Slide:
    """Two gradients meet at z; the client runs backward once."""
    text = bullets(
        (
            "The client's gradient is linear in the gradient at z: add the two there, and run the client backward "
            "<b>once</b>.",
            "客户端的梯度对 z 处的梯度是线性的：在 z 处把两份梯度相加，客户端<b>只反传一次</b>。",
        ),
        (
            "The same as two backward passes, to rounding: a test says so.",
            "与两次反传的结果相同（只差舍入误差），有测试为证。",
        ),
        (
            "What a real pair does: the server returns ∂L_D/∂z, the device adds its own term.",
            "真实部署正是如此：服务端返回 ∂L_D/∂z，设备在本地加上自己的一项。",
        ),
    )
    program = code(
        """
feature = detach_at_cut(z)
task_loss = cross_entropy(server(noise(feature)), y)
out = surrogate(feature, y)
backward_at_cut(z, feature, task_loss, out.rob_loss,
                lambd=0.3, estimator=surrogate)
"""
    )
    heading = ("Merge at the cut: one backward pass", "在切分点合并：只需一次反传")
    source = ["src/attention_cem/training/cut_gradient.py", "tests/training/test_cut_gradient.py"]
    return Slide("merge", METHOD, heading, columns(text + program, drawings.merge_at_cut()), source)


def audit(shelf: Shelf) -> Slide:
    """No figure without proof that the attacker was given a fair chance."""
    text = bullets(
        (
            "The attacker knows the model and the defence, and owns the training images: the worst case.",
            "攻击者知道模型和防御，还拥有训练图像：按最坏情况来。",
        ),
        (
            f"<b>Converged?</b> Train on from a restarted learning rate: at most {CONVERGENCE_TOLERANCE:.0%} more may "
            "come of it.",
            f"<b>收敛了吗？</b>学习率重新升起再训一段，改进不得超过 {CONVERGENCE_TOLERANCE:.0%}。",
        ),
        (
            f"<b>Calibrated?</b> {NEAR_PERFECT_PSNR:.0f} dB on a client that hides nothing; within "
            f"{REACH_TOLERANCE:.0%} of the mean image on one that sends nothing.",
            f"<b>校准了吗？</b>对毫不隐藏的客户端要达到 {NEAR_PERFECT_PSNR:.0f} dB；对什么都不发的客户端，"
            f"与平均图像相差不得超过 {REACH_TOLERANCE:.0%}。",
        ),
        (
            "<b>Headline:</b> the worst case over attacks. An under-trained attack that does better still counts, and "
            "is marked.",
            "<b>结论：</b>取所有攻击中的最坏情况。没训够却更厉害的攻击照样算数，并加以标注。",
        ),
    )
    sources = ["src/attention_cem/attacks/receipts.py", "src/attention_cem/auditing/calibration.py"]
    note = ""
    measured = shelf.data("results/benchmarks/attacks-h200.json")
    if measured is not None:
        figures, gpu = measured["figures"], measured["machine"]["gpu"]
        note = paragraph(
            f"Reference inverter: {figures['inverter_seconds']:.0f} s on {gpu}; an identity-like client is rebuilt at "
            f"{figures['identity_psnr']:.1f} dB.",
            f"参考反演网络：在 {gpu} 上用时 {figures['inverter_seconds']:.0f} 秒；近似恒等的客户端可还原到 "
            f"{figures['identity_psnr']:.1f} dB。",
            "note",
        )
        sources.append(shelf.cite("results/benchmarks/attacks-h200.json"))
    heading = ("Every attack comes with a receipt", "每次攻击都附凭据")
    return Slide("audit", AUDIT, heading, columns(text + note, drawings.sealed_audit()), sources)
