"""A share of trials with its interval."""

from math import sqrt

from msgspec import Struct


class Share(Struct, frozen=True, kw_only=True):
    """Hits among trials.

    Attributes:
        hits: How many.
        of: Trials.
        share: Hits over trials; None without trials.
        low: Lower end of the interval.
        high: Its upper end.
    """

    hits: int
    of: int
    share: float | None = None
    low: float | None = None
    high: float | None = None


def share(hits: int, of: int, *, z: float = 1.959964) -> Share:
    r"""Return hits over trials with Wilson's interval.

    $$\frac{p + z^2/2n \pm z \sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}$$

    It holds for few trials and for shares near 0 and 1, where the textbook interval collapses (Wilson 1927, JASA 22,
    209-212). It takes trials for independent; two seeds of one fault are less than that, so that it is rather too narrow.

    Args:
        hits: How many.
        of: Trials.
        z: Quantile of the normal distribution; 95 % two-sided.

    >>> found = share(9, 10)
    >>> round(found.low, 3), round(found.high, 3)
    (0.596, 0.982)
    """
    if not of:
        return Share(hits=hits, of=of)
    p, square = hits / of, z * z / of
    middle, half = p + square / 2, z * sqrt(p * (1 - p) / of + square / (4 * of))
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    return Share(hits=hits, of=of, share=p, low=max(0.0, low), high=min(1.0, high))
