"""Cost and shipping: what a surrogate adds to a step, and the two halves under load, from results/benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from slides import charts
from slides.sources import Shelf
from slides.story import missing
from slides.words import Slide, both, bullets, columns, commands, paragraph, table

COST, SHIP = ("Cost", "开销"), ("Ship it", "部署")
_STEP, _RATE = "results/benchmarks/step-h200.json", "results/benchmarks/throughput-h200.json"
_COMPILED = "results/benchmarks/throughput-h200-compiled.json"
_SERVING = "results/benchmarks/serving.json"
_SHORT = {
    "slot": "slots (documents)",
    "gated": "gated (documents)",
    "slot mixture, 1,000 classes, one sample each": "slot mixture, 1,000 classes",
    "linear leakage": "closed form, linear",
    "linear leakage, 512 random features": "closed form, solved",
    "linear leakage, 512 random features, followed": "closed form, followed",
    "linear leakage, 512 random features, followed, on 8 px": "closed form, 8 px",
    "local leakage, followed": "closed form, local",
}


def cost(shelf: Shelf) -> Slide:
    """Ratios to the step without a surrogate, and the trainer's throughput."""
    heading = ("What a surrogate adds to a training step", "代理损失给每步训练增加多少开销")
    step, rate = shelf.data(_STEP), shelf.data(_RATE)
    if step is None:
        return Slide("cost", COST, heading, missing(_STEP, "python -m benchmarks.step"))
    rows = {str(row["surrogate"]): row for row in step["rows"]}
    shown = [
        (_SHORT.get(name, name), float(row["graph_ratio"]), f"{row['graph_ratio']:.2f}×") for name, row in rows.items()
    ]
    words = ("Step time against no surrogate", "每步用时（相对于不用代理损失）")
    chart = charts.bars(shown, words, ["closed form, followed"])
    text = paragraph(
        f"Whole VGG-11 steps, batch {step['batch']}, bf16, recorded as one CUDA graph; 1× is the step without a "
        "surrogate. Purple: the attacker of the default recipe.",
        f"完整的 VGG-11 训练步，批大小 {step['batch']}，bf16，录制成一个 CUDA 图；1× 是不用代理损失的训练步。"
        "紫色：默认做法的攻击者。",
    )
    points = []
    ratios = {name: row["compiled_graph_ratio"] for name, row in rows.items() if "compiled_graph_ratio" in row}
    compiled = [f"{_SHORT.get(name, name)} {ratio:.2f}×" for name, ratio in ratios.items() if name != "none"]
    if compiled:
        points.append(
            (
                f"Compiled: {', '.join(compiled)}. What costs is the number of small kernels.",
                f"编译之后：{'，'.join(compiled)}。开销主要来自大量的小内核。",
            )
        )
    machine = step["machine"]
    sources = [shelf.cite(_STEP), f"{machine['gpu']}, torch {machine['torch']}"]
    if rate is not None:
        graph, compiled_seconds = (_seconds(each, step["batch"]) for each in (rate, shelf.data(_COMPILED)))
        points += [_epoch(name, graph[name], compiled_seconds.get(name)) for name in graph]
        sources += [shelf.cite(_RATE), *([shelf.cite(_COMPILED)] if compiled_seconds else [])]
    body = columns(text + bullets(*points), chart, kind="wide-right")
    return Slide("cost", COST, heading, body, sources)


def _seconds(rate: Mapping[str, Any] | None, batch: int) -> dict[str, float]:
    """Seconds an epoch by method, ten classes in batches of ``batch``."""
    rows = [row for row in rate["rows"] if row["batch"] == batch and row["classes"] == 10] if rate else []
    return {str(row["method"]): row["epoch_s"] for row in rows if row["method"] in ("none", "k-means", "sound")}


def _epoch(name: str, seconds: float, compiled: float | None) -> tuple[str, str]:
    also = ("", "") if compiled is None else (f", compiled {compiled:.2f}", f"，编译后 {compiled:.2f} 秒")
    return (
        f"An epoch, <b>{escape(name)}</b>: {seconds:.2f} s{also[0]}",
        f"一轮，<b>{escape(name)}</b>：{seconds:.2f} 秒{also[1]}",
    )


def ship(shelf: Shelf) -> Slide:
    """Export, serve, predict; and the load test."""
    heading = ("Both halves, ready to run", "两半模型，拿来就能跑")
    verbs = commands(
        ("attention-cem advise", "where to cut", "在哪里切分"),
        ("attention-cem export", "ONNX client, ONNX server", "导出 ONNX 客户端与服务端"),
        ("attention-cem serve", "Open Inference Protocol", "按 Open Inference Protocol 服务"),
        ("attention-cem predict", "from a device", "在设备上预测"),
    )
    text = bullets(
        (
            "The exported client carries its noise; the device draws it from its operating system.",
            "导出的客户端自带噪声；随机数取自设备的操作系统。",
        ),
        (
            "Nothing but z leaves the device, and the defence that ships is the one that was attacked.",
            "离开设备的只有 z；部署的防御，就是被攻击检验过的那一套。",
        ),
    )
    left = f"{verbs}<br>{text}"
    measured = shelf.data(_SERVING)
    if measured is None:
        return Slide("ship", SHIP, heading, columns(left, missing(_SERVING, "python -m benchmarks.serving --kill")))
    runs = {("steady", "平稳"): measured["load"], ("killed, restarted", "杀掉并重启"): measured.get("load_with_kill")}
    rows = [[both(*name), *_load(run)] for name, run in runs.items() if run is not None]
    head = [
        ("load", "负载"),
        ("images/s", "张/秒"),
        ("p50", "p50"),
        ("p99", "p99"),
        ("wrong", "答错"),
        ("errors", "报错"),
    ]
    setting = measured["setting"]
    clients, seconds, images = setting["clients"], setting["seconds"], setting["batch"]
    backbone, cores = escape(str(setting["backbone"])), measured["machine"]["cores"]
    told = paragraph(
        f"{clients} clients for {seconds:.0f} s, {backbone}, {images} images a request; clients and server share "
        f"{cores} CPU cores.",
        f"{clients} 个客户端，持续 {seconds:.0f} 秒，{backbone}，每次请求 {images} 张；"
        f"客户端和服务端共用 {cores} 个 CPU 核。",
        "note",
    )
    return Slide("ship", SHIP, heading, columns(left, table(head, rows) + told), [shelf.cite(_SERVING)])


def _load(run: Mapping[str, Any]) -> list[str]:
    cells = (
        f"{run['images_per_s']:.0f}",
        f"{run['p50_ms']:.0f} ms",
        f"{run['p99_ms']:.0f} ms",
        f"{run['wrong']}",
        f"{run['errors']}",
    )
    return [f'<span class="number">{cell}</span>' for cell in cells]
