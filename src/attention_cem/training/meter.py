"""Running means that stay on the device until somebody reads them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Meter:
    """Means of named scalars over the steps of an epoch; reading them is the only wait for the device.

    Values that are not finite are left out of the mean. Buffers are kept per set of names and zeroed in place,
    so that a recorded graph may write into them.

    >>> meter = Meter(torch.device("cpu"))
    >>> meter.add({"loss": torch.tensor(1.0)})
    >>> meter.add({"loss": torch.tensor(2.0)})
    >>> meter.means()
    {'loss': 1.5}
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tables: dict[tuple[str, ...], Tensor] = {}

    @torch.no_grad()
    def add(self, values: Mapping[str, Tensor]) -> None:
        """Count one step."""
        table = self._table(tuple(values))
        stacked = torch.stack([value.detach().to(torch.float32) for value in values.values()])
        finite = torch.isfinite(stacked)
        table.add_(torch.stack([torch.where(finite, stacked, 0.0), finite.to(torch.float32)]))

    def means(self) -> dict[str, float]:
        """The means so far; names that no finite value was added to are left out."""
        result: dict[str, float] = {}
        for names, table in self._tables.items():
            sums, counts = table.tolist()
            for name, total, count in zip(names, sums, counts, strict=True):
                if count:
                    result[name] = total / count
        return result

    def reset(self) -> None:
        """Start over."""
        for table in self._tables.values():
            table.zero_()

    def state(self) -> dict[str, Tensor]:
        """The tables by their names, joined with ``|``."""
        return {"|".join(names): table for names, table in self._tables.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for names, table in state.items():
            self._table(tuple(names.split("|"))).copy_(table)

    def _table(self, names: tuple[str, ...]) -> Tensor:
        if names not in self._tables:
            self._tables[names] = torch.zeros(2, len(names), dtype=torch.float64, device=self._device)
        return self._tables[names]
