"""When rare work is due: often at the start, while everything moves, and then regularly."""


def is_power_of_two(number: int) -> bool:
    """Whether ``number`` is 1, 2, 4, 8, …"""
    return number > 0 and number & (number - 1) == 0


def is_due(step: int, every: int) -> bool:
    """Whether step ``step`` is a multiple of ``every`` or, before that, a power of two.

    >>> [step for step in range(40) if is_due(step, 10)]
    [1, 2, 4, 8, 10, 20, 30]
    """
    return step > 0 and (step % every == 0 or (step < every and is_power_of_two(step)))
