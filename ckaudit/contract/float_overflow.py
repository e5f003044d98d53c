"""What arithmetic does with any numbers that somebody logged: it goes on, as IEEE 754 says, and nobody is warned.

A loss of 1e308 is a finite number, and its square is not: that square is infinity, which every comparison understands.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

Arguments = ParamSpec("Arguments")
T = TypeVar("T")


def takes_any_numbers(function: Callable[Arguments, T]) -> Callable[Arguments, T]:
    """Let what overflows in a function become infinite, and what is undefined NaN, without a warning.

    Every door by which recorded numbers come in has this, and nothing behind a door needs it. Not for generators: they run
    in the time of whoever asks them.
    """
    return np.errstate(all="ignore")(function)
