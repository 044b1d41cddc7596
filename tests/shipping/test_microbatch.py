"""Batches form under load, never mix up answers, and one request's misfortune is not its neighbours'."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from attention_cem.shipping.microbatch import MicroBatcher, Overloaded


def run(body):
    with ThreadPoolExecutor(1) as executor:
        return asyncio.run(body(executor))


def sample(value, count=1):
    return np.full((count, 2), value, np.float32)


def test_microbatch__waiting_requests_are_computed_together_and_answered_apart():
    sizes = []

    async def body(executor):
        gate = threading.Event()

        def compute(z):
            sizes.append(len(z))
            gate.wait(10)
            return z * 2

        batcher = MicroBatcher(compute, executor, max_batch=8, max_waiting=100)
        first = asyncio.create_task(batcher(sample(1)))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(batcher(sample(n, 1 + n % 3))) for n in range(2, 8)]
        await asyncio.sleep(0.05)
        gate.set()
        return await asyncio.gather(first, *rest)

    answers = run(body)
    assert sizes[0] == 1  # a lone request does not wait for others
    assert max(sizes) <= 8 and len(sizes) < 7
    for value, answer in zip([1, *range(2, 8)], answers, strict=True):
        assert np.array_equal(answer, sample(2 * value, len(answer)))


def test_microbatch__a_request_larger_than_a_batch_goes_alone():
    async def body(executor):
        return await MicroBatcher(lambda z: z, executor, max_batch=4, max_waiting=9)(sample(3, 10))

    assert run(body).shape == (10, 2)


def test_microbatch__a_client_that_left_does_not_hurt_its_neighbours():
    async def body(executor):
        gate = threading.Event()

        def compute(z):
            gate.wait(10)
            return z

        batcher = MicroBatcher(compute, executor, max_batch=8, max_waiting=100)
        tasks = [asyncio.create_task(batcher(sample(n))) for n in range(4)]
        await asyncio.sleep(0.05)
        tasks[0].cancel()
        tasks[2].cancel()
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = run(body)
    assert isinstance(answers[0], asyncio.CancelledError) and isinstance(answers[2], asyncio.CancelledError)
    assert np.array_equal(answers[1], sample(1)) and np.array_equal(answers[3], sample(3))


def test_microbatch__too_many_are_told_to_come_back():
    async def body(executor):
        gate = threading.Event()

        def compute(z):
            gate.wait(10)
            return z

        batcher = MicroBatcher(compute, executor, max_batch=1, max_waiting=2)
        tasks = [asyncio.create_task(batcher(sample(0)))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(batcher(sample(n))) for n in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await batcher(sample(9))
        gate.set()
        await asyncio.gather(*tasks)

    run(body)


def test_microbatch__an_error_reaches_its_requests_and_the_next_are_answered():
    async def body(executor):
        failing = [True]

        def compute(z):
            if failing.pop():
                raise RuntimeError("no")
            return z

        failing[:] = [False, True]
        batcher = MicroBatcher(compute, executor, max_batch=1, max_waiting=9)
        with pytest.raises(RuntimeError):
            await batcher(sample(1))
        return await batcher(sample(2))

    assert np.array_equal(run(body), sample(2))
