"""Everyday mistakes: a function for each, which changes the parts of a training before it runs."""

from benchmarks.everyday.mistakes.mistake import Mistake


def mistakes() -> dict[str, Mistake]:
    """Return every mistake by name."""
    from benchmarks.everyday.mistakes import batches, evaluation, learning_rate, loss, model, updates  # noqa: F401  they register
    from benchmarks.everyday.mistakes.mistake import MISTAKES

    return dict(MISTAKES)
