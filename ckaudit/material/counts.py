"""Counts: one with its noun, and how sure a share is that was counted on a sample."""

from math import sqrt


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "file"), plural(1200, "file"), plural(2, "hash")
    ('1 file', '1,200 files', '2 hashes')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith(('sh', 'ch')) else 's'}"


def wilson(hits: float, of: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Return the interval that holds the true share in 95 % of samples (Wilson 1927, JASA 22:209).

    Unlike the usual plus or minus it stays within 0 to 1, and says something of zero hits too.

    Args:
        hits: How many had it; an expectation where that is what is known.
        of: How many were looked at, at least 1.
        z: Quantile of the normal distribution; the default is that of 97.5 %.

    >>> [round(end, 4) for end in wilson(0, 10)]
    [0.0, 0.2775]
    """
    share, weight = hits / of, z * z / of
    middle = (share + weight / 2) / (1 + weight)
    half = z * sqrt(share * (1 - share) / of + weight / (4 * of)) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
