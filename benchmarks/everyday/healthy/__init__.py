"""Healthy trainings as different users write them: a function for each."""

from benchmarks.everyday.healthy.common import HEALTHY
from benchmarks.everyday.tasks import Maker


def healthy() -> dict[str, Maker]:
    """Return every healthy training by name."""
    from benchmarks.everyday.healthy import fine_tuning, games, own_losses, pictures, recipes, sequences, tables  # noqa: F401

    return dict(HEALTHY)
