"""A count with its noun, one of them or many."""


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "file"), plural(1200, "file"), plural(2, "hash")
    ('1 file', '1,200 files', '2 hashes')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith(('sh', 'ch')) else 's'}"
