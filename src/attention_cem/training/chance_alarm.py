"""ChanceAlarm: says when a model learns nothing, as under a defence or a step size that is too strong too early."""

from dataclasses import dataclass
from math import ceil

NOTHING_LEARNED = "nothing is learned"
"""How the sentence begins; who reads results finds them by it."""
_LEAST_EPOCHS = 3
_LEAST_STEPS = 300  # fewer teach little, defence or not


def patience(steps_per_epoch: int) -> int:
    """Epochs at chance after which a model counts as one that learns nothing.

    >>> patience(352), patience(4)
    (3, 75)
    """
    return max(_LEAST_EPOCHS, ceil(_LEAST_STEPS / steps_per_epoch))


@dataclass
class ChanceAlarm:
    """Watches the balanced validation accuracy of every epoch.

    A defence or a whole step size that acts on a network that has learned nothing yet can press the feature down to
    nothing. The server then sees noise, the client gets no gradient from it, and neither ever comes back: what looks
    like perfect privacy is a model that answers at random.

    Args:
        num_classes: among the validation images; one constant answer gets so much of them right.
        patience: epochs in a row at chance before it is said.
        above: accuracy as a multiple of chance up to which it counts as chance.

    >>> alarm = ChanceAlarm(num_classes=10, patience=2)
    >>> alarm.update(0.10), alarm.update(0.10)[:50]
    (None, 'nothing is learned: balanced accuracy 10.0 % after')
    """

    num_classes: int
    patience: int = _LEAST_EPOCHS
    above: float = 1.1
    epochs: int = 0
    at_chance: int = 0

    def update(self, balanced_accuracy: float) -> str | None:
        """Take in one epoch's accuracy and return the warning, if there is one."""
        self.epochs += 1
        chance = 1 / self.num_classes
        self.at_chance = self.at_chance + 1 if balanced_accuracy <= self.above * chance else 0
        if self.num_classes < 2 or self.at_chance < self.patience:
            return None
        return (
            f"{NOTHING_LEARNED}: balanced accuracy {100 * balanced_accuracy:.1f} % after {self.epochs} epochs, "
            f"{100 * chance:.1f} % is chance; set train.lr_warmup_epochs to 1, or give the defence less weight or a "
            "longer ramp"
        )
