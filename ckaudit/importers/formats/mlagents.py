"""Console of Unity ML-Agents, with a summary line on the episodes of a behavior every few thousand steps.

    [INFO] Walker. Step: 50000. Time Elapsed: 60.134 s. Mean Reward: 1.230. Std of Reward: 0.500. Training.

The mean reward is a return of episodes. A step is an environment step. Each behavior is a run; where its steps restart, another
run begins. A line that reports no completed episode has no reward, and is left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import writable
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.named_lines import read_named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "Unity ML-Agents console"
GENERIC = False
HEAD_BYTES = 2**20
_MARK = b". Time Elapsed: "
_NUMBER = r"-?(?:nan|inf|\d{1,20}\.\d{1,6})"
_LINE = re.compile(
    r"\[INFO\] (.{1,120}?)\. Step: (\d{1,12})\. Time Elapsed: \d{1,12}\.\d{1,6} s\. (?:Rank: \d{1,6}\. )?"
    rf"Mean Reward: ({_NUMBER})\. (?:Mean Group Reward: {_NUMBER}\. )?Std of Reward: {_NUMBER}\."
)
_NOTES = ("steps are those of the environment", "the time elapsed and the deviation of the rewards were left out")
Summary = tuple[int, int, dict[str, float]]


def detects(source: Source) -> bool:
    """Tell whether a line has a mean reward."""
    head = source.data[:HEAD_BYTES]
    return is_text(source) and _MARK in head and next(_summaries(head), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the mean rewards, one run per behavior.

    Raises:
        UnreadableError: Where no line has a mean reward.
        UsageError: Where `columns` names a key that no line holds.
    """
    behaviors: dict[str, list[Summary]] = {}
    for behavior, summary in _summaries(source.data):
        behaviors.setdefault(behavior, []).append(summary)
    if len(behaviors) < 2:
        return _runs([summary for summaries in behaviors.values() for summary in summaries], source, columns)
    return [
        replace(run, name=f"{behavior}, {run.name}" if run.name else behavior)
        for behavior, summaries in behaviors.items()
        for run in _runs(summaries, source, columns)
    ]


def _runs(summaries: Sequence[Summary], source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Return the runs of one behavior."""
    return read_named_lines(source, columns, NAME, step_lines(summaries), notes=_NOTES)


def _summaries(data: bytes) -> Iterator[tuple[str, Summary]]:
    """Yield the behavior of each line with a mean reward, and its line number, step and reward."""
    for number, line in numbered_lines(data):
        if len(line) <= MAX_LINE and (match := _LINE.match(line)):
            yield writable(match[1]), (number, int(match[2]), {"mean reward": float(match[3])})
