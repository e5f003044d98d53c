"""Choice of the column that counts a table's steps, where several may: updates, environment steps, or episodes."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ckaudit.importers.kinds_of_loss import CAMEL, episode_counter
from ckaudit.importers.tables.curves import StepAxis, steps_of_epochs
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, fullest_column, steps_from

STEP_COUNTER = re.compile(r"(?:^|[\W_])(?:steps?|iter(?:ation)?s?|updates?)$", re.IGNORECASE)
"""End of the name of a column that may count steps; its numbers must count, too."""
ENVIRONMENT_STEPS = ("total_timesteps", "timesteps_so_far", "total timesteps", "total_env_interacts", "total_env_steps")
"""Names of environment step counters, without their groups, in logs of Stable-Baselines3, OpenAI's baselines, Spinning Up and
garage."""


def may_count_steps(name: str) -> bool:
    """Tell whether a column may count steps by its name."""
    return STEP_COUNTER.search(name) is not None or counts_environment_steps(name)


def counts_environment_steps(name: str) -> bool:
    """Tell whether a column counts environment steps by its name.

    >>> [counts_environment_steps(name) for name in ("time/total_timesteps", "TimestepsSoFar", "steps")]
    [True, True, False]
    """
    return CAMEL.sub("_", name.rpartition("/")[2]).lower() in ENVIRONMENT_STEPS


def only_counter(header: Sequence[str], columns: Mapping[int, Numbers]) -> int | None:
    """Return the one column whose name ends like a counter's and whose numbers count up; None: there is none, or several.

    Environment steps take precedence over other counters, as in the records that the same programs print.

    Args:
        header: All names.
        columns: The columns that are not used otherwise, by their positions.
    """
    free = [position for position, column in columns.items() if counts_up(column)]
    counters = [position for position in free if counts_environment_steps(header[position])]
    counters = counters or [position for position in free if STEP_COUNTER.search(header[position])]
    return counters[0] if len(counters) == 1 else None


def counts_up(column: Numbers, *, min_rising_share: float = 0.5) -> bool:
    """Tell whether integers never fall, and rise in most rows, unlike a count of skipped updates."""
    steps = steps_from(column)[column.recorded]
    rises = np.diff(steps)
    return bool((steps != NO_STEP).all() and len(rises) and (rises >= 0).all() and (rises > 0).mean() >= min_rising_share)


def fullest_counter(header: Sequence[str], positions: Sequence[int], columns: Mapping[int, Numbers]) -> int:
    """Return the fullest of some columns that may count steps; an episode counter only if the fullest other does not count.

    Beside episodes, a column called steps may hold the length of each episode.
    """
    episode = episode_counter(header)
    others = [position for position in positions if position != episode]
    fullest = fullest_column(others or positions, columns)
    if episode is None or episode not in positions or counts_up(columns[fullest]):
        return fullest
    return episode if counts_up(columns[episode]) else fullest


def steps_of_episodes(name: str, episodes: Numbers, series: Iterable[Numbers]) -> StepAxis | None:
    """Return one step per episode and a note on it, or None where a series has two values in one episode.

    Args:
        name: The name of the column.
        episodes: Episode of each row.
        series: The series logged in the same rows.
    """
    axis = steps_of_epochs(episodes, series)
    note = f"episodes are the axis, step N here is the end of the N-th, by {name}; how many updates one took is not recorded"
    return None if axis is None else axis._replace(notes=[note])
