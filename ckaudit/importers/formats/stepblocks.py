"""Blocks of lines below a line that names their step, with a few values per line, as Coqui TTS prints them.

       --> STEP: 25/500 -- GLOBAL_STEP: 50
         | > loss: 59.67995  (60.27675)
         | > grad_norm: 111.58461  (130.00000)
    > EVALUATION
         | > avg_loss: 50.49594 (+0.0)

Of several counts in a heading the last is the step. A block without a step of its own belongs to the previous step, and its
losses are evaluation losses where its heading says so. Of `59.7 (60.3)` the first number is taken; the second is a running mean.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.text.line_reader import step_lines
from ckaudit.importers.text.line_values import has_reward, has_training_loss, known_values, name_of
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.named_lines import read_named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "blocks of lines under a step"
GENERIC = True
MIN_STEPS = 5
"""Minimum number of steps with a training loss or a return in such a log."""

HEAD_BYTES = 2**18
MAX_HEADING = 160  # characters
_STEP = re.compile(r"(?<![A-Za-z])(?:global[_ ])?(?:step|iteration|iter|update)s?[:= #]{1,3}(\d{1,12})(?![\w.])", re.IGNORECASE)
_EVALUATION = re.compile(r"(?<![A-Za-z])(?:eval|valid|test)", re.IGNORECASE)
_TRAINING = re.compile(r"(?<![A-Za-z])train", re.IGNORECASE)
StepValues = tuple[int, int, dict[str, float]]


def detects(source: Source) -> bool:
    """Tell whether the text has rising steps, each on a line without a value, and training losses or returns below them."""
    head = source.data[:HEAD_BYTES]
    if not is_text(source) or not (b"oss" in head or b"eward" in head):
        return False
    if sum(map(_may_be_heading, numbered_lines(head))) < MIN_STEPS:
        return False
    steps = [step for _, step, values in _lines(head) if has_training_loss(values) or has_reward(values)]
    return len(steps) >= MIN_STEPS and all(before < after for before, after in pairwise(steps))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the blocks.

    Raises:
        UnreadableError: Where no step has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    rows = step_lines(_lines(source.data))
    left_out = [] if columns else [key for key in rows.columns if name_of(key) is None]
    return read_named_lines(source, columns, NAME, rows, left_out=left_out)


def _lines(data: bytes) -> Iterator[StepValues]:
    """Yield the line number, the last step named before, and the values of each line with a value of a known name."""
    step, phase = 0, ""
    for line_number, line in numbered_lines(data):
        if len(line) > MAX_LINE:
            continue
        if values := known_values(line, phase=phase):
            if step:
                yield line_number, step, values
        elif len(line) <= MAX_HEADING:
            if named := _STEP.findall(line):
                step, phase = int(named[-1]), ""
            elif _TRAINING.search(line):
                phase = ""
            elif _EVALUATION.search(line):
                phase = "eval "


def _may_be_heading(numbered: tuple[int, str]) -> bool:
    """Tell whether a line names a step and no loss; this is cheaper than parsing all its values."""
    _, line = numbered
    return len(line) <= MAX_HEADING and "oss" not in line and _STEP.search(line) is not None
