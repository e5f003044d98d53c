"""What in a new line asks for a judgement at once: a number that is none any more, or a leap of the loss or the gradient."""

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from ckaudit.contract.fast_jsonl import WORDS

LEAPS = {"train_loss_raw": 1.5, "grad_global_norm": 5.0}
"""How many times its median a value is to be: half of what the recorder's triggers ask (2 and 10), so that no rule waits."""
WINDOW = 50
LEAST = 10


class Alarm:
    """Looks at each new line; it judges nothing itself, so that it may be wrong."""

    def __init__(self) -> None:
        """Begin without any line."""
        self._recent: dict[str, deque[float]] = {name: deque(maxlen=WINDOW) for name in LEAPS}
        self._ill: set[str] = set()

    def rings(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a line asks for a judgement at once."""
        return self._is_new_nonfinite(row) | self._leaps(row)

    def _is_new_nonfinite(self, row: Mapping[str, Any]) -> bool:
        ill = {name for name, value in row.items() if _is_nonfinite(value)}
        new = ill - self._ill
        self._ill = (self._ill - row.keys()) | ill
        return bool(new)

    def _leaps(self, row: Mapping[str, Any]) -> bool:
        rang = False
        for name, times in LEAPS.items():
            value, recent = row.get(name), self._recent[name]
            if isinstance(value, str) or value is None:
                continue
            rang |= len(recent) >= LEAST and value > times * median(recent) > 0
            recent.append(float(value))
        return rang


def _is_nonfinite(value: Any) -> bool:
    if type(value) is float:
        return value - value != 0
    return isinstance(value, str) and value in WORDS
