"""How two levels of a loss are told apart, and the sentence on it."""

from ckaudit.diff.both import SURE, level
from ckaudit.diff.noise import Stretches
from ckaudit.diff.questions.question import Said, lower_is_better


def judged(found: Stretches, what: str, *, share: float = SURE, unit: str = "nats/token") -> Said:
    """Return the word for the last level of a loss, with a sentence that begins with `what`."""
    left, right, band = level(found, share=share)
    word = lower_is_better(left, right, band)
    how = {"same": "equal", "within_noise": "within noise", "worse": "higher", "better": "lower"}[word]
    sentence = f"{what}: {left:.4g} and {right:.4g}, {how}; noise explains {band:.2g}"
    return Said(word=word, sentence=sentence, left=left, right=right, band=band, unit=unit)
