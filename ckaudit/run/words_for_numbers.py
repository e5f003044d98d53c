"""Words and booleans under the names of numbers: they are left out, and a note names them."""

from collections.abc import Mapping

from ckaudit.contract.schema.scalars import is_number
from ckaudit.wording import plural


def word_notes(words: Mapping[str, Mapping[int, str]]) -> list[str]:
    """Return a note for each name whose values can only be numbers, and that holds words.

    Args:
        words: The words by name and step.

    >>> word_notes({"grad_global_norm": {4: "false", 5: "false"}, "phase": {1: "warmup"}})
    ["grad_global_norm holds no number but a word at 2 steps, first 'false' at step 4; they count as not recorded"]
    """
    return [
        f"{name} holds no number but a word at {plural(len(by_step), 'step')}, first {by_step[min(by_step)][:40]!r} at step "
        f"{min(by_step)}; they count as not recorded"
        for name, by_step in words.items()
        if is_number(name) and by_step
    ]
