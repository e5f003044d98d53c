"""Lines of a text log that speak of an evaluation: their bare losses and scores are of held-out data."""

import re

from ckaudit.importers.tables.numbers import fill_missing
from ckaudit.importers.text.line_values import OF_MARKED_TEST, OF_TEST, PAIR, Columns, name_of

_SCORE = "microbench_score/"
_COUNTS = re.compile(r"(?:step|iter|iteration|update|epoch)s?\Z", re.IGNORECASE)
_MARKS_EVALUATION = re.compile(  # not the name of a value, as in `val 5.28` or `eval=False`, and no part of a path
    r"(?<![\w./=-])(?<!last )(?<!next )(?<!best )(?<!since )(?<!until )"
    r"(?:(val|valid|validat(?:e|ion|ing)|eval|evaluat(?:e|ion|ing)|dev)|test|testing)(?![\w./=-])"
    r"(?!\s{0,4}:?\s{0,4}(?:[-+.\d]|nan\b|inf|true\b|false\b|no(?:ne)?\b))",
    re.IGNORECASE,
)


def key_of_evaluation(name: str, before: str) -> str:
    """Return the key of a value: that of a held-out loss or score if it is a bare one after a word that marks an evaluation.

    Args:
        name: The name of the value, in lower case.
        before: The line up to the name.

    >>> key_of_evaluation("loss", "eval at step 100: "), key_of_evaluation("loss", "step 100, val 5.28, ")
    ('val loss', 'loss')
    >>> key_of_evaluation("loss", "step 100, valid tokens 5120, ")
    'loss'
    """
    meant = name_of(name) or ""
    is_score = meant.startswith(_SCORE)
    if "train" in name or not (is_score or meant == "train_loss_raw"):
        return name
    mark = _MARKS_EVALUATION.search(_without_values(before))
    if not mark:
        return name
    if is_score:
        return held_out if (name_of(held_out := f"{'val' if mark[1] else 'test'} {name}") or "").startswith(_SCORE) else name
    return f"val {name}" if mark[1] else OF_MARKED_TEST


def _without_values(text: str) -> str:
    """Return a text without its values: in `valid tokens 5120` the first word marks nothing, in `eval step 100` it does."""
    return PAIR.sub(lambda pair: pair[0] if _COUNTS.search(pair[1]) else " ", text)


def with_marked_tests(columns: Columns) -> Columns:
    """Return the columns with losses of lines that speak of a test as test losses beside a training loss, else as the loss."""
    if OF_MARKED_TEST not in columns:
        return columns
    others = {key: column for key, column in columns.items() if key != OF_MARKED_TEST}
    key = OF_TEST if any(name_of(key) == "train_loss_raw" for key in others) else "loss"
    return others | {key: fill_missing(others[key], columns[OF_MARKED_TEST]) if key in others else columns[OF_MARKED_TEST]}
