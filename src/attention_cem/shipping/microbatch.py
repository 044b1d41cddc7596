"""Adaptive batching: whatever waits while the model computes is computed together next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

Compute = Callable[[NDArray[np.float32]], NDArray[np.float32]]


class Overloaded(Exception):  # noqa: N818 (a state, not a mistake)
    """Too many requests wait already."""


class MicroBatcher:
    """Groups waiting requests into one call of the model.

    MLServer's own batcher merges requests before they are validated, so that one bad request fails its neighbours,
    and waits for a fixed time even when nobody else comes. Here requests are valid when they arrive; a lone one is
    computed at once; under load batches form while the previous one is computed.

    Args:
        compute: maps ``(N, ...)`` to ``(N, ...)``, sample by sample.
        executor: where ``compute`` runs, so that the event loop stays free.
        max_batch: most samples in a call, unless one request alone has more.
        max_waiting: most requests that wait; more raise `Overloaded`.
        observe: told the number of samples of every call.
    """

    def __init__(
        self,
        compute: Compute,
        executor: Executor,
        *,
        max_batch: int,
        max_waiting: int,
        observe: Callable[[int], None] = lambda samples: None,
    ) -> None:
        self._compute = compute
        self._executor = executor
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._observe = observe
        self._waiting: deque[tuple[NDArray[np.float32], asyncio.Future[NDArray[np.float32]]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The model's output for ``samples``."""
        if len(self._waiting) >= self._max_waiting:
            raise Overloaded
        future: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._waiting.append((samples, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._take()
            if not batch:
                continue
            joined = batch[0][0] if len(batch) == 1 else np.concatenate([samples for samples, _ in batch])
            self._observe(len(joined))
            try:
                results = await loop.run_in_executor(self._executor, self._compute, joined)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            begin = 0
            for samples, future in batch:
                # A client that went away has cancelled its future; its neighbours still get their answers.
                if not future.done():
                    future.set_result(results[begin : begin + len(samples)])
                begin += len(samples)

    def _take(self) -> list[tuple[NDArray[np.float32], asyncio.Future[NDArray[np.float32]]]]:
        taken: list[tuple[NDArray[np.float32], asyncio.Future[NDArray[np.float32]]]] = []
        total = 0
        while self._waiting and (not taken or total + len(self._waiting[0][0]) <= self._max_batch):
            samples, future = self._waiting.popleft()
            if not future.done():
                taken.append((samples, future))
                total += len(samples)
        return taken
