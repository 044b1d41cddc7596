"""The flow chart of a configured pipeline as SVG: who computes what, what is sent, what training adds."""

from __future__ import annotations

from dataclasses import dataclass

from attention_cem.studies.pipeline import Pipeline
from attention_cem.studies.surrogate_stages import Stage
from attention_cem.studies.svg import INK, QUIET, Svg

WIDTH = 1360.0
_DEVICE, _DEVICE_LINE = "#eaf6ee", "#3c8d5a"
_SERVER, _SERVER_LINE = "#e9f1fb", "#3569ad"
_TRAINING, _TRAINING_LINE = "#fdf5e4", "#b7791f"
_GRADIENT, _SENT = "#c0392b", "#7a3fa0"
_TOP, _BOX = 150.0, 104.0
_MIDDLE = _TOP + _BOX / 2
_LANE = 98.0
_PANEL, _FIRST_PANEL = 222.0, 352.0
_BETWEEN = 72.0
_LEGIBLE = 34  # characters of a defence that fit its box without becoming too small to read


def draw_flow_chart(pipeline: Pipeline) -> str:
    """The SVG text; labels are English with Chinese beneath.

    >>> from attention_cem.studies.pipeline import describe_pipeline
    >>> from attention_cem.training import load_config
    >>> config = load_config(overrides={"data.name": "cifar10", "model.name": "tiny_cnn"})
    >>> "(128, 3, 32, 32)" in draw_flow_chart(describe_pipeline(config))
    True
    """
    panels = _panels(pipeline)
    below = _FIRST_PANEL + len(panels) * (_PANEL + _BETWEEN) - _BETWEEN
    measured = f"surrogate {pipeline.surrogate}" if pipeline.stages or not panels else "closed-form attacker"
    title = f"{pipeline.data} · {pipeline.backbone} · {measured}"
    picture = Svg(WIDTH, below + 50 if panels else 340.0, title)
    picture.text(40, 40, title, size=24, weight=700, anchor="start")
    subtitle = f"B = {pipeline.batch_size} images a batch, z = {_dims(pipeline.z_shape)} → D = {pipeline.feature_dim}"
    picture.text(40, 64, subtitle, size=14, colour=QUIET, anchor="start")
    _draw_inference(picture, pipeline)
    _draw_gradients(picture, " + ".join(["∂L_D/∂z", *(panel.gradient for panel in panels)]), merged=bool(panels))
    for number, panel in enumerate(panels):
        _draw_panel(picture, panel, _FIRST_PANEL + number * (_PANEL + _BETWEEN), pipeline, first=number == 0)
    if not panels:
        picture.text(
            40, 312, "No surrogate: H(z|y) is not lowered.  未使用替代项：不降低 H(z|y)。", colour=QUIET, anchor="start"
        )
    return picture.document()


@dataclass(frozen=True)
class _Panel:
    """What training adds to the task: stages, and the scalar they end in."""

    head: str
    head_zh: str
    stages: tuple[Stage, ...]
    scalar: str
    factor: str
    since: str
    since_zh: str
    gradient: str


def _panels(pipeline: Pipeline) -> list[_Panel]:
    panels = []
    if pipeline.stages:
        panels.append(
            _Panel(
                f"Training only: surrogate {pipeline.surrogate} estimates H(z|y)",
                "仅训练时：替代项估计条件熵 H(z|y)",
                pipeline.stages,
                "rob_loss",
                f"λ = {pipeline.lambd:g}",
                f"used after epoch {max(pipeline.warmup_epochs, 1)}",
                "预热之后启用",
                "λ·w·∂rob_loss/∂z",
            )
        )
    if pipeline.attacker:
        ramp = pipeline.attacker_ramp
        panels.append(
            _Panel(
                "Training only: the client is trained against an attacker in closed form",
                "仅训练时：客户端对着闭式攻击者训练",
                pipeline.attacker,
                "share",
                f"weight = {pipeline.attacker_weight:g}",
                f"whole after {ramp:,} steps" if ramp else "whole from the start",
                "权重逐步升满" if ramp else "权重从一开始就是满值",
                "weight·∂share/∂z",
            )
        )
    return panels


def _draw_inference(picture: Svg, pipeline: Pipeline) -> None:
    _zone(picture, 24, 682, "On the user's device", "用户设备", _DEVICE, _DEVICE_LINE)
    _zone(picture, 866, 470, "On the server", "服务器", _SERVER, _SERVER_LINE)
    batch = pipeline.batch_size
    _tensor(picture, 40, 112, "x", (batch, *pipeline.image_shape), "image", "图像")
    channels, activation = pipeline.bottleneck
    bottleneck = f"+ bottleneck {channels}, {activation}" if channels else "bare cut"
    facts = (pipeline.blind, pipeline.backbone, bottleneck, f"{pipeline.client_parameters:,} parameters")
    _box(picture, 184, 170, "Client", "客户端", tuple(filter(None, facts)), _DEVICE_LINE)
    defences = [_defence(name, values) for name, values in pipeline.defences[:3]] or ["none: z is released as it is"]
    if len(pipeline.defences) > 3:
        defences[2] = f"and {len(pipeline.defences) - 2} more"
    _box(picture, 490, 200, "Defences", "防御", tuple(defences), _DEVICE_LINE)
    server = (pipeline.backbone, f"{pipeline.server_parameters:,} parameters")
    _box(picture, 886, 170, "Server", "服务端", server, _SERVER_LINE)
    # The closed-form attacker has a panel of its own: it needs the images, which the server does not have.
    named = [name for name in pipeline.penalties if name != "linear_leakage" or not pipeline.attacker]
    terms = [f"+ {name.replace('_', ' ')}" for name in named]
    terms = terms if len(terms) <= 2 else [terms[0], f"and {len(terms) - 1} more"]
    _box(picture, 1186, 134, "Loss", "任务损失", ("L_D:", "cross-entropy", *terms), _SERVER_LINE)
    _flow(picture, 152, 184)
    _flow(picture, 354, 490)
    _label(picture, 424, "z", (batch, *pipeline.z_shape), INK)
    _flow(picture, 690, 886, _SENT)
    _label(picture, 786, "ẑ", (batch, *pipeline.z_shape), _SENT)
    picture.text(786, _MIDDLE - 36, "sent · 发送", size=13, colour=_SENT, weight=600)
    picture.text(786, _MIDDLE + 44, "whoever sees ẑ", size=12, colour=_SENT)
    picture.text(786, _MIDDLE + 60, "tries to rebuild x", size=12, colour=_SENT)
    picture.text(786, _MIDDLE + 77, "攻击者由 ẑ 还原 x", size=12, colour=_SENT)
    _flow(picture, 1056, 1186)
    _label(picture, 1121, "logits", (batch, pipeline.num_classes), INK)


def _draw_panel(picture: Svg, panel: _Panel, top: float, pipeline: Pipeline, *, first: bool) -> None:
    bottom = top + _PANEL
    picture.box(24, top - 40, WIDTH - 48, _PANEL + 60, fill=_TRAINING, stroke=_TRAINING_LINE, radius=16, dashed=True)
    picture.text(150, top - 15, panel.head, size=15, weight=700, colour=_TRAINING_LINE, anchor="start")
    picture.text(WIDTH - 48, top - 15, panel.head_zh, size=15, weight=600, colour=_TRAINING_LINE, anchor="end")
    left, loss_width, gap = 150.0, 124.0, 24.0
    count = len(panel.stages)
    width = (WIDTH - 48 - loss_width - left - gap * count) / count
    middle = (top + bottom) / 2
    # z leaves the main row at the cut, and enters as a matrix; a second panel's goes round the first.
    corners = [(92.0, 292.0)] if first else [(32.0, 292.0), (32.0, middle - 60), (92.0, middle - 60)]
    picture.arrow([(368, _MIDDLE), (368, 292), *corners, (92, middle - 42)], colour=_TRAINING_LINE)
    picture.text(92, middle - 20, "flatten", size=14, weight=700)
    picture.text(92, middle, "展平", size=13, colour=QUIET)
    picture.text(92, middle + 22, _shape((pipeline.batch_size, pipeline.feature_dim)), size=12, mono=True, widest=112)
    picture.arrow([(92, middle + 32), (92, middle + 52), (left - 2, middle + 52)], colour=_TRAINING_LINE)
    for number, stage in enumerate(panel.stages):
        x = left + number * (width + gap)
        _stage(picture, x, top, width, bottom - top, number + 1, stage)
        picture.arrow([(x + width, middle + 52), (x + width + gap - 2, middle + 52)], colour=_TRAINING_LINE)
    x = left + count * (width + gap)
    centre = x + loss_width / 2
    picture.box(x, middle - 28, loss_width, 138, fill="#ffffff", stroke=_TRAINING_LINE)
    picture.text(centre, middle, panel.scalar, size=17, weight=700)
    picture.text(centre, middle + 22, "scalar · 标量", size=13, colour=QUIET)
    picture.text(centre, middle + 52, panel.factor, size=14, mono=True, widest=loss_width - 10)
    picture.text(centre, middle + 76, panel.since, size=12, colour=QUIET, widest=loss_width - 8)
    picture.text(centre, middle + 94, panel.since_zh, size=12, colour=QUIET, widest=loss_width - 8)
    up = [(1349.0, _LANE), (1330.0, _LANE)] if first else [(1349.0, middle + 20 - _PANEL - _BETWEEN + 2)]
    picture.arrow([(x + loss_width, middle + 20), (1349, middle + 20), *up], colour=_GRADIENT, dashed=True)


def _draw_gradients(picture: Svg, sum_of: str, *, merged: bool) -> None:
    """Back along the top: all gradients meet at the cut, and the client's backward pass runs once."""
    picture.arrow([(1253, _TOP), (1253, _LANE + 3)], colour=_GRADIENT, dashed=True)
    path = [(1349 if merged else 1253, _LANE), (424, _LANE), (424, _MIDDLE - 38), (356, _MIDDLE - 38)]
    picture.arrow(path, colour=_GRADIENT, dashed=True)
    english = f"{sum_of}, merged at the cut: one backward pass" if merged else sum_of
    chinese = "在切分处合并梯度，客户端只反传一次" if merged else "反向传播"
    picture.text(838, _LANE - 9, f"{english}  ·  {chinese}", size=14, weight=600, colour=_GRADIENT)


def _zone(picture: Svg, x: float, width: float, english: str, chinese: str, fill: str, line: str) -> None:
    picture.box(x, _TOP - 36, width, 156, fill=fill, stroke=line, radius=16, dashed=True, stroke_width=1.2)
    picture.text(x + 18, _TOP - 14, english, size=14, weight=700, colour=line, anchor="start")
    picture.text(x + width - 18, _TOP - 14, chinese, size=14, weight=600, colour=line, anchor="end")


def _box(picture: Svg, x: float, width: float, english: str, chinese: str, facts: tuple[str, ...], line: str) -> None:
    picture.box(x, _TOP, width, _BOX, fill="#ffffff", stroke=line)
    picture.text(x + 14, _TOP + 25, english, size=16, weight=700, anchor="start")
    picture.text(x + width - 14, _TOP + 25, chinese, size=13, colour=QUIET, anchor="end")
    step = 19 if len(facts) <= 3 else 16
    for number, fact in enumerate(facts):
        picture.text(
            x + 14, _TOP + 50 + step * number, fact, size=12.5, colour=QUIET, anchor="start", widest=width - 24
        )


def _tensor(
    picture: Svg, x: float, width: float, name: str, shape: tuple[int, ...], english: str, chinese: str
) -> None:
    picture.box(x, _MIDDLE - 40, width, 80, fill="#ffffff", stroke=INK, radius=24, stroke_width=1.2)
    picture.text(x + width / 2, _MIDDLE - 14, name, size=18, weight=700)
    picture.text(x + width / 2, _MIDDLE + 6, f"{english} · {chinese}", size=12, colour=QUIET)
    picture.text(x + width / 2, _MIDDLE + 25, _shape(shape), size=12, mono=True, widest=width - 10)


def _stage(picture: Svg, x: float, y: float, width: float, height: float, number: int, stage: Stage) -> None:
    picture.box(x, y, width, height, fill="#ffffff", stroke=_TRAINING_LINE)
    picture.circle(x + 22, y + 28, 13, fill=_TRAINING_LINE)
    picture.text(x + 22, y + 33, str(number), size=14, weight=700, colour="#ffffff")
    picture.text(x + 42, y + 26, stage.title, size=15, weight=700, anchor="start", widest=width - 52)
    picture.text(x + 42, y + 46, stage.title_zh, size=13, colour=QUIET, anchor="start", widest=width - 52)
    for line, text in enumerate(stage.lines):
        picture.text(x + 14, y + 82 + 22 * line, text, size=13, anchor="start", widest=width - 24)
    picture.box(x + 12, y + height - 58, width - 24, 46, fill=_TRAINING, stroke="none", radius=8)
    picture.text(x + width / 2, y + height - 39, stage.output, size=13, weight=600)
    picture.text(x + width / 2, y + height - 21, _shape(stage.shape), size=12.5, mono=True, widest=width - 30)


def _flow(picture: Svg, left: float, right: float, colour: str = INK) -> None:
    picture.arrow([(left, _MIDDLE), (right - 2, _MIDDLE)], colour=colour)


def _label(picture: Svg, x: float, name: str, shape: tuple[int, ...] | None, colour: str) -> None:
    picture.text(x, _MIDDLE - 14, name, size=17, weight=700, colour=colour)
    if shape is not None:
        picture.text(x, _MIDDLE + 22, _shape(shape), size=12, colour=colour, mono=True, widest=148)


def _defence(name: str, values: dict[str, object]) -> str:
    shown = [f"{'σ' if key == 'sigma' else key} {value}" for key, value in values.items()]
    spoken, most = name.replace("_", " "), len(shown)
    while most > 1 and len(spoken) + len(", ".join(shown[:most])) > _LEGIBLE:
        most -= 1
    return f"{spoken} ({', '.join(shown[:most])}{', …' if most < len(shown) else ''})" if shown else spoken


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(str(size) for size in shape)}{',' if len(shape) == 1 else ''})"


def _dims(shape: tuple[int, ...]) -> str:
    return " × ".join(str(size) for size in shape)
