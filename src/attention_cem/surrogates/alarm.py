"""The self-deception alarm: says in words when a surrogate reports privacy that is not there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan


@dataclass
class SelfDeceptionAlarm:
    """Watches one row of figures per epoch and returns a sentence for each sign of self-deception.

    It compares the surrogate's loss with ``intra_mse``, a parameter-free estimate of the within-class spread that no
    estimator can influence, and looks at the health figures a surrogate reports.

    Args:
        window: epochs over which trends are judged.
        fall: relative fall of the loss that counts as falling; ``follow``: the least share of it that the spread
            must follow with.
        shutoff: share of calls with the loss switched off that is too much.

    >>> alarm = SelfDeceptionAlarm(window=2)
    >>> for epoch, loss in enumerate([1.0, 0.5, 0.1]):
    ...     words = alarm.update({"rob_loss": loss, "intra_mse": 0.04})
    >>> words[0][:60]
    'the surrogate reports 90 % less entropy, but the spread of t'
    """

    window: int = 5
    fall: float = 0.2
    follow: float = 0.1
    shutoff: float = 0.5
    history: list[tuple[float, float]] = field(default_factory=list)

    def update(self, row: Mapping[str, float]) -> list[str]:
        """Take in one epoch's figures (missing ones are not judged) and return the warnings."""
        self.history.append((row.get("rob_loss", nan), row.get("intra_mse", nan)))
        return [text for text in (self._trend(), *self._health(row)) if text]

    def _trend(self) -> str | None:
        if len(self.history) <= self.window:
            return None
        (loss, spread), (now_loss, now_spread) = self.history[-self.window - 1], self.history[-1]
        if loss <= 0 or spread <= 0:
            return None
        fell, change = 1 - now_loss / loss, now_spread / spread - 1
        if fell > self.fall and -change < self.follow * fell:
            return (
                f"the surrogate reports {100 * fell:.0f} % less entropy, but the spread of the features changed by "
                f"{100 * change:+.0f} % in the same {self.window} epochs: the estimator is fooling itself"
            )
        return None

    def _health(self, row: Mapping[str, float]) -> list[str | None]:
        def judged(name: str, bad: bool, words: str) -> str | None:
            return words.format(row[name]) if name in row and bad else None

        def value(name: str) -> float:
            return row.get(name, nan)

        return [
            judged(
                "shutoff_share",
                value("shutoff_share") > self.shutoff,
                "the surrogate was shut off on {:.0%} of its calls: the model trains without a defence",
            ),
            judged("soft_gate_mean", value("soft_gate_mean") < 0.01, "the soft gates are closed (mean {:.3f})"),
            judged("snr_gate_mean", value("snr_gate_mean") > 0.99, "the SNR gates are saturated (mean {:.3f})"),
            judged("dead_slots", value("dead_slots") >= 1, "{:.1f} slots hold almost no samples"),
            judged(
                "effective_samples",
                value("effective_samples") < 2,
                "the attention has collapsed: it rests on {:.1f} samples per class",
            ),
            judged("active_classes", value("active_classes") == 0, "no class was active: the surrogate did nothing"),
        ]
