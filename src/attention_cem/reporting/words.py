"""Every string of the page in English and Chinese. ``{name}`` is filled in; values are escaped by the caller."""

from __future__ import annotations

WORDS: dict[str, tuple[str, str]] = {
    "title": ("What does the model give away?", "模型泄露了什么？"),
    "report": ("Privacy report", "隐私报告"),
    "language": ("中文", "English"),
    "theme": ("light / dark", "浅色 / 深色"),
    "contents": ("Contents", "目录"),
    "in_words": ("In words", "用文字说明"),
    "how_it_works": (
        "The model is cut in two. The first half (the client) runs on the user's device and turns the image into "
        "numbers, called z. Only z leaves the device. The second half (the server) reads the answer from z. "
        "This page asks what else can be read from z: could somebody rebuild the image?",
        "模型被切成两半。前半部分（客户端）在用户的设备上运行，把图像变成一组数字，称为 z。只有 z 离开设备。"
        "后半部分（服务器端）从 z 读出答案。本页要问的是：从 z 里还能读出什么？有人能把图像重建出来吗？",
    ),
    "sent": ("What is sent", "发送了什么"),
    "sent_text": (
        "Instead of the image ({image} values), z of shape {z} with this protection, in training or on the way: "
        "{defence}.",
        "不发送图像（{image} 个数值），而是发送形状为 {z} 的 z，训练中或途中的保护：{defence}。",
    ),
    "trained_with": (
        "The client was trained with the surrogate {name} (λ {lambd}), which teaches z to say little beyond the class.",
        "客户端训练时使用了代理损失 {name}（λ {lambd}），它使 z 除类别外尽量少透露信息。",
    ),
    "blind_client": (
        "The client never sees the {waves}×{waves} slowest waves of the image: z tells them only as far as the rest of "
        "the image gives them away.",
        "客户端看不到图像中最慢的 {waves}×{waves} 个波：z 只能透露图像其余部分所暗示的那些。",
    ),
    "no_defence": ("none", "无"),
    "who": ("Who could see it", "谁可能看到"),
    "who_white": (
        "Whoever runs the server, breaks into it, or listens on the line. The attacker here is given more than most "
        "have: the client itself, full knowledge of the protection, and images it was trained on.",
        "运行服务器的人、入侵服务器的人，或在线路上监听的人。这里的攻击者得到的比多数人更多："
        "客户端本身、对保护措施的完全了解，以及训练时所用的图像。",
    ),
    "who_black": (
        "Whoever runs the server, breaks into it, or listens on the line. The attacker here has pairs of images and z, "
        "but not the client itself.",
        "运行服务器的人、入侵服务器的人，或在线路上监听的人。这里的攻击者拥有图像与 z 的配对，但没有客户端本身。",
    ),
    "back": ("What they get back", "他们能得到什么"),
    "back_text": (
        "The best of {count} attacks ({attack}) rebuilds unseen test images with a mean squared error of {mse} "
        "(95 % interval {low} to {high}), {psnr} dB, SSIM {ssim}. Somebody who sees nothing and answers the average "
        "image has an error of {floor}. The closer the first figure is to the last, the less is given away.",
        "{count} 种攻击中最好的一种（{attack}）重建从未见过的测试图像，均方误差为 {mse}"
        "（95 % 区间 {low} 至 {high}），{psnr} dB，SSIM {ssim}。什么都看不到、只回答平均图像的人，误差为 {floor}。"
        "第一个数字越接近最后一个，泄露越少。",
    ),
    "remains": (
        "The class of the image (for faces: who it is) is what the server is meant to learn. An attacker who already "
        "owns pictures of that class can always answer with their average; no protection of z can hide what the "
        "server must know.",
        "图像的类别（对人脸而言：是谁）正是服务器应当得知的内容。已经拥有该类别图片的攻击者总可以用它们的平均图作答；"
        "对 z 的任何保护都无法隐藏服务器必须知道的东西。",
    ),
    "answer": (
        "The best of {count} attacks rebuilds unseen images with {share} % of the error of somebody who sees nothing: "
        "0 % would give the images away whole, 100 % not at all.",
        "以什么都看不到的人的误差为 100 %，{count} 种攻击中最好的一种重建未见过的图像时，误差为其 {share} %："
        "0 % 表示图像完全泄露，100 % 表示毫无泄露。",
    ),
    "how_sure": ("How sure is that?", "有多确定？"),
    "receipt_is": (
        "A receipt says whether an attack was given a fair chance: it passes if the attack had finished learning and "
        "works where the answer is known.",
        "凭据说明攻击是否得到了公平的机会：攻击已充分学习，且在答案已知之处表现正确，凭据才算通过。",
    ),
    "no_headline": (
        "This run was attacked, but none of the attacks can be trusted, so nothing can be said about what it gives "
        "away: their receipts say why.",
        "该运行已受到攻击检验，但没有一种攻击可信，因此无法说明它泄露了什么：原因见各攻击的凭据。",
    ),
    "other_runs": ("Further runs: see the table.", "其他运行见下表。"),
    "not_audited": (
        "This run has not been attacked yet, so nothing can be said about what it gives away. Audit it first.",
        "该运行尚未受到攻击检验，因此无法说明它泄露了什么。请先进行审计。",
    ),
    "other_weights": (
        "This audit is of other weights than the run's best: audit again.",
        "该审计针对的不是该运行的最佳权重：请重新审计。",
    ),
    "not_finished": ("This run is not finished.", "该运行尚未完成。"),
    "accuracy": ("accuracy", "准确率"),
    "mse": ("MSE (higher: more private)", "均方误差（越高越隐私）"),
    "psnr": ("PSNR", "PSNR"),
    "ssim": ("SSIM", "SSIM"),
    "run": ("run", "运行"),
    "attack": ("attack", "攻击"),
    "status": ("receipt", "凭据"),
    "worst_attack": ("best attack", "最强攻击"),
    "floor": ("sees nothing", "什么都看不到"),
    "faces": ("Look for yourself", "亲眼看看"),
    "faces_text": (
        "Test images that no attacker had seen, worst leak first, and what the strongest attack on each model made "
        "of them.",
        "攻击者从未见过的测试图像（泄露最严重的在前），以及针对每个模型的最强攻击重建出的结果。",
    ),
    "left_out": (
        "Other test images were attacked in these runs, so they are not in this row: {names}.",
        "以下运行所攻击的是其他测试图像，因此不在此列：{names}。",
    ),
    "original": ("original", "原图"),
    "rebuilt": ("rebuilt", "重建"),
    "slider": (
        "Move the slider: original on the left of the line, rebuilt image on the right",
        "移动滑块：线左侧为原图，右侧为重建图",
    ),
    "grid": ("Reconstructions, worst leak first", "重建结果，泄露最严重的在前"),
    "grid_text": ("Attack: {attack}. Below each image its error (MSE).", "攻击：{attack}。每张图下方为其误差（MSE）。"),
    "no_pictures": (
        "The pictures of the attack are not in the folder (or were altered), so none are shown.",
        "文件夹中没有攻击所得的图片（或图片被改动过），因此不予显示。",
    ),
    "trade_off": ("Accuracy against privacy", "准确率与隐私的权衡"),
    "trade_off_text": (
        "Up is more private, right is more accurate. Point at a mark for its figures; bars are 95 % intervals over "
        "test images. A hollow mark stands on attacks whose receipts did not pass: its true error may be lower.",
        "越靠上越隐私，越靠右越准确。将指针移到标记上查看数值；竖线为对测试图像的 95 % 区间。"
        "空心标记表示其攻击凭据未通过：真实误差可能更低。",
    ),
    "other_images": (
        "Not all runs here were attacked on the same images: judge each error beside that of somebody who sees "
        "nothing, in the table.",
        "这里的运行并非都在相同的图像上受到攻击：请把每个误差与表中什么都看不到的人的误差对照来看。",
    ),
    "by_waves": ("What stays hidden, coarse to fine", "仍被隐藏的部分：由粗到细"),
    "by_waves_text": (
        "Error of the strongest attack by the cosine waves of the image it is in, as a share of the error of somebody "
        "who sees nothing: 1 means that nothing of this fineness was rebuilt. Waves 0-3 are brightness and the largest "
        "shapes.",
        "最强攻击的误差按图像的余弦波分解，除以什么都看不到的人的误差：1 表示这一精细程度的内容完全没有被重建。"
        "0-3 号波是亮度与最大的形状。",
    ),
    "per_class": ("Leakage by class", "按类别的泄露"),
    "per_class_text": (
        "Mean error of the attack on the test images of each class, most exposed first.",
        "攻击在每个类别测试图像上的平均误差，暴露最严重的在前。",
    ),
    "more_classes": ("{count} less exposed classes are not drawn.", "另有 {count} 个暴露较轻的类别未画出。"),
    "health": ("Is the surrogate alive?", "代理损失是否在起作用？"),
    "health_none": (
        "This run has no surrogate: nothing in training lowers what z says about the image.",
        "该运行没有使用代理损失：训练中没有任何东西降低 z 所含的图像信息。",
    ),
    "health_penalties": (
        "This run has no surrogate; what teaches z to say less about the image is: {names} (weighted terms of the "
        "loss, last epoch).",
        "该运行没有使用代理损失；让 z 少透露图像信息的是：{names}（损失中的加权项，最后一轮）。",
    ),
    "health_good": (
        "Alive: the surrogate {name} took part in training (λ {lambd}), was shut off on {share} of the steps, and "
        "raised no alarm in the last epoch.",
        "正常：代理损失 {name} 参与了训练（λ {lambd}），被关闭的步数占 {share}，最后一轮没有发出警报。",
    ),
    "health_alarm": ("Alarm of the last epoch:", "最后一轮的警报："),
    "health_earlier": ("Earlier in training:", "训练早期："),
    "health_never": (
        "The surrogate {name} never became active: λ was 0 in every epoch, so this model trained without it.",
        "代理损失 {name} 从未启用：每一轮 λ 都为 0，因此该模型在没有它的情况下训练。",
    ),
    "shut_off_all": (
        "The surrogate {name} was switched off on {share} of the steps on which it should have worked. This model was "
        "trained WITHOUT the protection its configuration promises. Whatever privacy is measured here does not come "
        "from it.",
        "代理损失 {name} 在本应起作用的步骤中有 {share} 被关闭。"
        "该模型实际上是在没有其配置所承诺的保护的情况下训练的。"
        "这里测得的任何隐私都不是它带来的。",
    ),
    "shut_off_part": (
        "The surrogate {name} was switched off on {share} of the steps on which it should have worked: for most of "
        "training this model was not protected by it.",
        "代理损失 {name} 在本应起作用的步骤中有 {share} 被关闭：在大部分训练时间里，该模型没有受到它的保护。",
    ),
    "nonfinite": (
        "On {count} steps the surrogate was not a finite number; those steps trained without it.",
        "有 {count} 步代理损失不是有限数；这些步骤在没有它的情况下训练。",
    ),
    "vital": ("figure", "指标"),
    "last_value": ("last epoch", "最后一轮"),
    "heat_map": ("Attention: share of each class held by each slot", "注意力：每个槽占有各类别的份额"),
    "heat_map_text": (
        "One row a class, one column a slot. A column that is empty everywhere is a dead slot; one dark cell in every "
        "row means that a single slot holds the whole class. With cross_fit a row is the mean of the class's two "
        "halves, the largest slot of one with the largest of the other.",
        "每行一个类别，每列一个槽。处处为空的列是死槽；若每行只有一个深色格，则说明一个槽占有整个类别。"
        "使用 cross_fit 时，每行是该类别两半的平均，一半中最大的槽与另一半中最大的槽配对，依此类推。",
    ),
    "histogram": ("How the shares are distributed", "份额的分布"),
    "share": ("share", "份额"),
    "how_many": ("how many", "数量"),
    "no_slots": (
        "This surrogate keeps no attention weights in the checkpoint, so there is no map to draw.",
        "该代理损失不在检查点中保存注意力权重，因此没有可画的热图。",
    ),
    "one_slot": (
        "There is one slot a class, so it holds the whole class and there is no map to draw.",
        "每个类别只有一个槽，它占有整个类别，因此没有可画的热图。",
    ),
    "class": ("class", "类别"),
    "slot": ("slot", "槽"),
    "curves": ("Training", "训练过程"),
    "epoch": ("epoch", "轮次"),
    "curve_accuracy": ("validation accuracy", "验证准确率"),
    "curve_loss": ("validation loss", "验证损失"),
    "curve_rob": ("rob_loss (surrogate)", "rob_loss（代理损失）"),
    "curve_intra": ("intra_mse: spread of z within classes", "intra_mse：类内 z 的离散程度"),
    "curve_leakage": ("leakage_share: share of x recovered, at least", "leakage_share：x 至少被恢复的份额"),
    "curve_shutoff": ("share of steps shut off", "被关闭步骤的份额"),
    "curve_lambd": ("λ in effect", "生效的 λ"),
    "receipts": ("Receipts: was the attacker given a fair chance?", "凭据：攻击者是否得到了公平的机会？"),
    "receipts_text": (
        "A figure counts only if the attack had finished learning (converged) and works on two test clients whose "
        "answer is known (calibrated).",
        "只有当攻击已充分学习（收敛），并且在两个答案已知的检验客户端上表现正确（已校准）时，其数字才算数。",
    ),
    "converged": ("converged", "收敛"),
    "calibrated": ("calibrated", "已校准"),
    "why": ("why", "原因"),
    "yes": ("yes", "是"),
    "no": ("no", "否"),
    "not_tried": ("not tried", "未尝试"),
    "passed": ("passed", "通过"),
    "under-trained": ("under-trained", "训练不足"),
    "miscalibrated": ("miscalibrated", "校准失败"),
    "kept its start": ("kept its start", "停在起点"),
    "gap": ("test − train MSE", "测试 − 训练 MSE"),
    "seconds": ("seconds", "秒"),
    "attack_curve": ("Attack progress", "攻击进展"),
    "settled": ("Is the figure settled?", "结果是否已稳定？"),
    "verdict_settled": ("settled", "已稳定"),
    "verdict_not settled": ("not settled", "未稳定"),
    "verdict_not judged": ("not judged", "未判定"),
    "warnings": ("Warnings of the audit", "审计警告"),
    "membership": ("Membership: can one tell who was in the training set?", "成员推断：能否判断谁在训练集中？"),
    "auc": ("AUC (0.5: chance)", "AUC（0.5 为随机）"),
    "tpr": ("found at 1 % false alarms", "1 % 误报率下的检出率"),
    "bounds": ("Bounds beside the measurements", "测量之外的理论界"),
    "bounds_text": (
        "relative_mse_floor compares with the entropy power of the images, the smallest error Theorem 1 allows to one "
        "who sees no release. Neighbouring pixels of real images depend on each other, so this lies far below the "
        "error of the average image: a measured error below that share of it is no contradiction.",
        "relative_mse_floor 是与图像的熵功率相比，即定理 1 对看不到发布内容者所允许的最小误差。"
        "真实图像的相邻像素彼此相关，"
        "因此它远低于平均图像的误差：测得的误差低于后者的该比例并不矛盾。",
    ),
    "bounds_none": ("No bound can be given: {reason}", "无法给出理论界：{reason}"),
    "bound": ("bound", "理论界"),
    "value": ("value", "数值"),
    "assumes": ("assumes", "假设"),
    "configuration": ("Full configuration", "完整配置"),
    "setting": ("setting", "设置"),
    "facts": ("Where the figures come from", "数字的来源"),
    "definitions": ("Definitions", "定义"),
    "studies": ("Comparison of methods", "方法比较"),
    "verdicts": ("Verdicts", "结论"),
    "cells": (
        "{done} of {planned} runs are done; {failed} failed.",
        "{planned} 个运行中已完成 {done} 个；失败 {failed} 个。",
    ),
    "method": ("method", "方法"),
    "hypervolume": ("hypervolume", "超体积"),
    "epoch_cost": ("seconds per epoch", "每轮秒数"),
    "points": ("runs", "运行数"),
    "pair": ("pair", "对比"),
    "cautions": ("with care", "注意"),
    "out_better": ("better", "更好"),
    "out_worse": ("worse", "更差"),
    "out_no difference": ("no difference shown", "未见差别"),
    "out_no difference shown": ("no difference shown", "未见差别"),
    "out_undecided": ("undecided", "未定"),
    "out_not comparable": ("not comparable", "不可比较"),
    "some_runs": (
        "{shown} of the study's runs are shown in detail below.",
        "下面详细显示该研究中的 {shown} 个运行。",
    ),
    "made_by": ("Written by attention-cem {version}.", "由 attention-cem {version} 生成。"),
}

DEFINITIONS_ZH: dict[str, str] = {
    "mse": "测试图像上逐图均方误差的平均；RGB 取值 [0, 1]；越高越隐私",
    "psnr": "测试图像上逐图 10·log10(1/MSE) 的平均，单位 dB，MSE 下限 1e-10；越低越隐私",
    "ssim": "测试图像上 SSIM 的平均（11×11 高斯窗，σ 1.5，有效区域，数据范围 1，各通道平均）；小于 11 像素的图像为空",
    "waves": "按误差所在的余弦波（DCT-II）分解的 MSE，由粗到细；编号 k 的波沿一边有 k/2 个周期，取两个编号中较大者；"
    "各部分之和等于 MSE",
    "ci95": "测试图像平均 MSE 的 95 % 百分位自助区间，重采样 2,000 次",
    "headline": "最坏情况：凭据通过的攻击中最低的 MSE，在它们都重建过的测试图像上比较（compared_mse），"
    "各数字则按该攻击重建过的图像（images）计算；若训练不足的攻击做得更好，则以它代替并加以标注；"
    "若没有一个能重建未见图像的攻击通过，也会标注；校准失败的攻击从不计入，停在起点的也不计入",
    "status": "通过：已收敛且已校准；训练不足：并非如此，真实的最坏情况可能更低；停在起点："
    "对另一攻击结果的改进一无所获，除该攻击外不构成新证据；校准失败："
    "在恒定客户端上胜过平均图像，其数字没有意义",
    "converged": "更多投入不会使攻击的验证 MSE 改变超过 2 %（通过重启学习率继续训练来检验），"
    "且没有免训练的基线做得更好",
    "calibrated": "同一攻击（其反演网络至多训练 50 轮）在近似恒等的客户端上达到 30 dB PSNR（基线：胜过平均图像），"
    "在恒定客户端上与平均图像相差不超过 10 %，且胜出不超过 2 %",
    "train_test_gap": "测试图像上的 MSE 减去攻击所拟合图像上的 MSE",
    "floor_mse": "以攻击者所有图像的平均图作答时，在测试图像上的 MSE：什么都看不到的人所得",
    "floor_waves": "同上，按波分解：每个波段的误差占此下限的份额，就是仍被隐藏的部分",
    "settled": "未稳定：攻击投入的后半部分仍使最佳验证 MSE 降低超过 2 %；只有彻底的预算才能判定为已稳定",
    "effort": "图像访问次数 × 反演网络参数量，对各反演攻击求和，最弱的在前",
    "accuracy": "服务器从所发布特征中正确预测标签的测试图像份额",
    "membership": "AUC 以及 1 % 误报率下的检出率，候选者的成员身份攻击者并不知道；随机水平为 0.5 和 0.01",
    "identity": "重建图像被分类器归入正确类别（人）的测试图像份额；分类器用攻击者的图像训练，其中不含测试图像；"
    "on_true_images 为其在原图上的份额，chance 为总是猜最常见类别的份额",
}

STUDY_DEFINITIONS_ZH: dict[str, str] = {
    "accuracy": "服务器从所发布特征中正确分类的测试图像份额",
    "mse": "审计的结论：各攻击在测试图像上平均 MSE 的最低值；越高越隐私",
    "ci95": "对方法和方法对：种子间的 95 % Student t 区间；"
    "方法对取 ln MSE，两种方法种子相同时逐个种子比较，否则用 Welch 区间",
    "seconds_per_epoch": "一次运行各轮的中位数，只计训练，不含验证；再对各运行取平均",
    "receipt_ok": "最坏情况是否建立在凭据通过的攻击之上；否则真实 MSE 可能更低",
    "front": "曲线上没有其他点在准确率和 MSE 两方面都更好的点",
    "hypervolume": "某个种子的前沿所胜过、且胜过参考点的全部（准确率，MSE）的面积；对种子取平均",
    "matched": "相同准确率下的 MSE：读取每个种子的前沿，点间以直线相连，从不外推",
    "overlap": "两种方法所有种子的前沿都达到的准确率",
}

ASSUMPTIONS_ZH: dict[str, str] = {
    "theorem2_leakage": "单位 nat；假设加噪前的 z 是对角高斯混合且噪声为高斯；矩取自留出图像",
    "information_upper_bound": "单位 nat；对任意密度 q 有 I(z; ẑ) ≤ −E[log q(ẑ)] − h(ẑ|z)，"
    "此处 q 为拟合于其他图像的混合；"
    "期望为留出图像上的平均，并给出其 95 % 上端",
    "relative_mse_floor": "exp(−2·I/d)，d 为像素数：任何攻击者的最小误差占图像熵功率的比例（定理 1）；"
    "熵功率本身不超过看不到发布内容者的误差；使用信息上界",
    "dfil": "发布内容关于像素的 Fisher 信息矩阵的迹，按像素平均；高斯噪声；Hutchinson 估计；留出图像上的平均",
    "dfil_mse_floor": "1/dFIL 的平均：任何无偏攻击者的最小 MSE（Cramér–Rao）；"
    "利用先验的攻击者（如训练出的反演网络）可以做得更好",
}
