"""A user-defined classifier: a function that takes texts and returns a score from 0 to 1 for each."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ckaudit.errors import CkauditError, UsageError

BATCH = 64

Classifier = Callable[[Sequence[str]], Sequence[float]]
T = TypeVar("T")


def load_classifier(spec: str) -> Classifier:
    """Return the function that `module:function` names; modules of the working folder are found as well.

    Raises:
        UsageError: If there is none.
    """
    module, colon, name = spec.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--classifier {spec!r} is not MODULE:FUNCTION", hint="write it like --classifier scorer:score")
    if (working_folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, working_folder)
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise UsageError(
            f"--classifier {spec}: {type(error).__name__}: {error}", hint="it must be importable from here"
        ) from error
    if not callable(function):
        raise UsageError(f"--classifier {spec}: {name} is not a function", hint="it takes a list of texts")
    return _checked(function, spec)


def _checked(function: Classifier, spec: str) -> Classifier:
    def score(texts: Sequence[str]) -> list[float]:
        try:
            scores = [float(value) for value in function(texts)]
        except Exception as error:
            raise CkauditError(f"the classifier {spec} failed: {type(error).__name__}: {error}") from error
        if len(scores) != len(texts):
            raise CkauditError(f"the classifier {spec} gave {len(scores)} scores for {len(texts)} texts")
        if bad := [score for score in scores if not 0 <= score <= 1]:
            raise CkauditError(f"the classifier {spec} gave {bad[0]}", hint="scores are probabilities, 0 to 1")
        return scores

    return score


def in_batches(items: Iterable[T], *, size: int = BATCH) -> Iterator[list[T]]:
    """Yield lists of at most `size` items.

    >>> list(in_batches("abc", size=2))
    [['a', 'b'], ['c']]
    """
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
