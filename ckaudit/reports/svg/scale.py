"""Scales of a chart: the place of each value, and the round numbers at which an axis has ticks."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ROUND = (1, 2, 5)
MANY = 20  # ticks: beyond this many, no smaller step is tried if only one round number fits

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

FAR_EXPONENT = 4  # from here on, powers of ten are written as such

LONGEST = 6  # letters of a fraction: more would reach the axis name

FARTHEST = 300.0  # largest power of ten that is drawn

FLAT = 1e-3  # of a value

NEAR = 0.2  # of the span: a limit farther outside the values is not drawn, because it would flatten them


class Scale(NamedTuple):
    """Maps values to places: linear or logarithmic.

    Attributes:
        low: Value at the start.
        high: Value at the end.
        start: Place of the lowest value.
        end: Place of the highest value.
        log: Whether the scale is logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        low, high, at = (_size(number, log=self.log) for number in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def has(self, value: float) -> bool:
        """Return whether a value lies on the scale."""
        return self.low <= value <= self.high

    def ticks(self, count: int, *, whole: bool = False) -> list[float]:
        """Return about `count` round numbers on the scale; integers if they count steps."""
        if self.log:
            return _decades(self.low, self.high, count)
        return _round_numbers(self.low, self.high, count, apart=1.0 if whole else 0.0)


def part_of(value: float, low: float, high: float) -> float:
    """Return the position of a value between `low` and `high` as a fraction; 0 if the two are equal.

    >>> part_of(1.5e308, -1.5e308, 1.5e308), part_of(1e-323, 0.0, 1e-323), part_of(2.0, 2.0, 2.0)
    (1.0, 1.0, 0.0)
    """
    if not high > low:
        return 0.0
    if math.isfinite(high - low):
        return (value - low) / (high - low)
    return (value / 2 - low / 2) / (high / 2 - low / 2)  # of floats at both ends of their range the difference is none


def _size(value: float, *, log: bool) -> float:
    """Return the position of a value on its axis: the value or its logarithm, clamped so that differences stay finite."""
    if log:
        return math.log10(min(max(value, 10**-FARTHEST), 10**FARTHEST))
    return min(max(value, -(10**FARTHEST)), 10**FARTHEST)


def fitted(
    values: Sequence[float], lines: Iterable[float], start: float, end: float, *, log: bool, margin: float = 0.05
) -> Scale:
    """Return the scale for some values and nearby limits, with a margin at both ends."""
    sizes = [_size(value, log=log) for value in values if value > 0 or not log]
    low, high = (min(sizes), max(sizes)) if sizes else (0.0, 1.0)
    span = high - low or abs(high) or 1.0
    near = [
        size
        for value in lines
        if value > 0 or not log
        if low - NEAR * span <= (size := _size(value, log=log)) <= high + NEAR * span
    ]
    low, high = min([low, *near]), max([high, *near])
    alike = 0.01 if log else FLAT * max(abs(low), abs(high))  # smaller differences are drawn flat
    rim = max(margin * (high - low), alike) or 1.0
    bottom, top = low - rim, high + rim
    if log:
        return Scale(10 ** max(bottom, -FARTHEST), 10 ** min(top, FARTHEST), start, end, log)
    return Scale(max(0.0, bottom) if low >= 0 else bottom, top, start, end)  # nonnegative values have no room below zero


def _round_numbers(low: float, high: float, count: int, *, apart: float = 0.0) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, at least this far apart.

    >>> _round_numbers(0.3, 3.4, 5)
    [1, 2, 3]
    >>> _round_numbers(2.4975, 2.5045, 3)
    [2.498, 2.5, 2.502, 2.504]
    """
    rough = max((high - low) / max(1, count), apart, sys.float_info.min)  # smaller values have no logarithm
    power = math.floor(math.log10(rough))
    step = next(part * 10.0**at for at in (power, power + 1) for part in ROUND if part * 10.0**at >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if first >= last and not apart and count < MANY:  # a single number does not show how far apart values are
        return _round_numbers(low, high, 2 * count)
    return [_whole(float(f"{place * step:.12g}")) for place in range(first, last + 1)]


def _decades(low: float, high: float, count: int) -> list[float]:
    """Return at most `count` powers of ten, evenly chosen; across few decades also twice and five times each.

    >>> _decades(2, 40, 6), _decades(1e-9, 1.0, 4)
    ([2, 5, 10, 20], [1e-09, 1e-06, 0.001, 1])
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 2:
        every = max(1, math.ceil((last - first + 1) / count))
        return [_whole(float(f"1e{at}")) for at in range(first, last + 1) if (at - first) % every == 0]
    fine = [float(f"{part}e{at}") for at in range(first - 1, last + 1) for part in ROUND]
    shown = [value for value in fine if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    return [_whole(value) for value in shown] if len(shown) > 2 else _round_numbers(low, high, max(5, count))


def _whole(value: float) -> float:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def tick_text(value: float, *, powers: bool = True) -> str:
    """Return the text of a tick: very large or small powers of ten as powers, and thousands with a comma.

    Args:
        value: The value of the tick.
        powers: Whether powers of ten are written as such; on a linear axis they are next to other numbers.

    >>> tick_text(0.001), tick_text(1e-9), tick_text(2000), tick_text(1_500_000), tick_text(5e-7), tick_text(0.00145)
    ('0.001', '10⁻⁹', '2,000', '1.5 M', '5e-7', '1.45e-3')
    >>> tick_text(1e-5, powers=False)
    '1e-5'
    """
    if not value:
        return "0"
    exponent = math.floor(math.log10(abs(value)) + 1e-12)
    if 6 <= exponent < 9:
        return f"{value / 1e6:g} M"
    plain = f"{value:,.10g}"
    if -FAR_EXPONENT < exponent < 6 and (exponent >= 0 or len(plain) <= LONGEST):
        return plain
    part = f"{value / 10.0**exponent:.6g}"
    power = f"10{str(exponent).translate(SUPERSCRIPT)}"
    return {"1": power, "-1": f"-{power}"}.get(part if powers else "", f"{part}e{exponent}")
