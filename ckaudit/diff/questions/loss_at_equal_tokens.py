"""The level of the loss when both have seen as many tokens."""

from ckaudit.diff.questions.levels import broken, judged
from ckaudit.diff.questions.question import PairAnswer, missing, question
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.progress import tokens_seen


@question(place=3, weighs="loss")
def loss_at_equal_tokens(both: Both) -> PairAnswer:
    """What does the loss cost after as many tokens?"""
    along = both.along("tokens")
    if along is not None and (answer := broken(along, train_loss_raw)):
        return answer
    stretches = None if along is None else along.level(train_loss_raw)
    if along is None or stretches is None:
        return missing(both, "tokens_seen")
    step = int(stretches.last[-1])
    seen = tokens_seen(both.right.run).until(step)
    tokens = float(seen.values[seen.finite[:, 0], 0][-1])
    return judged(stretches, f"median loss after {tokens:.4g} tokens")
