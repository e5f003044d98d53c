"""DATA001: targets are not the inputs shifted by one."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.attention import upper_triangle_mass
from ckaudit.metrics.data import target_shift_match
from ckaudit.metrics.loss_function import MAX_UNEXPLAINED, explained_share
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.attention_directions import is_encoder_decoder
from ckaudit.run.series import Series
from ckaudit.run.spans import spans

BEYOND_CHANCE = 0.3
"""Share of next-token targets that chance never reaches: the commonest tokens make up a tenth to a fifth of a text."""

MIN_MATCH = 0.95
"""Share of targets that are the next token of a language model: exactly 1, but for padding that a writer counts."""


@rule("DATA001", severity="sev0", needs=[target_shift_match], wants=[upper_triangle_mass, FACTS, explained_share], unit="1")
def target_misalignment(
    match: Series,
    ahead: Series | None,
    facts: Manifest | None,
    explained: Series | None,
    *,
    min_match: float = MIN_MATCH,
    sev0_match: float = 0.5,
    bidirectional: float = 0.05,
) -> Iterator[Hit | Skip]:
    """Targets are not the inputs shifted by one.

    ## What it checks
    The share of targets that are the next input token. It is exactly 1 in a healthy language model (in the lab's dev split
    healthy runs have 1.0, shuffled targets 0.08, a third of noisy labels 0.7):

    - A share of matching targets below `min_match` means that part of the targets belongs to something else (sev1).
    - A share below `sev0_match` means that most of the targets do (sev0, playbook D2.4 and the label rule of trainproof).
    - At a single checkpoint, after which all is right again, only one batch is wrong (sev2).
    ## Why it matters
    The model learns the frequencies of tokens and nothing else, while the loss falls as if all were well.
    ## False alarms
    A model of another task rightly has other targets:

    - A model that fills in masked tokens, for example, is not judged: it is taken for one where every head puts more than
      `bidirectional` of its weight on later tokens.
    - A model with an encoder and a decoder is not judged: its targets are another text than its inputs.
    - A model without attention may have other targets, as one that tags words or turns them round. It is a note where no mask
      says that the next token is to be predicted, and no checkpoint has more matching targets than chance makes.
    - Such a model is sev2 where the loss saves nothing of what a constant guess costs, for then nothing that is read belongs to
      what is asked.
    """
    if not (match.values < min_match).any():
        return
    if ahead is not None and float(np.nanmin(np.where(ahead.finite, ahead.values, np.inf))) > bidirectional:
        yield Skip("not_applicable", "all heads look ahead: the model does not predict the next token")
        return
    if is_encoder_decoder(facts):
        yield Skip("not_applicable", "an encoder reads the input, and the decoder's targets are another text")
        return
    is_known = ahead is not None or bool((match.values >= BEYOND_CHANCE).any())
    learns_nothing = explained is not None and (explained.late_median() or 0.0) <= MAX_UNEXPLAINED and _is_late(explained)
    least: Severity = "sev2" if learns_nothing else "note"
    grades: tuple[tuple[Severity, float, float, str], ...] = (
        ("sev0", -np.inf, sev0_match, "the model is not trained on the text that it reads"),
        ("sev1", sev0_match, min_match, "part of the targets belongs to other text, or to none"),
    )
    for severity, lowest, limit, what in grades:
        for span in spans(match, (match.values >= lowest) & (match.values < limit)):
            of_one_batch = is_of_one_batch(match, span.points, span.last, min_match)
            grade: Severity = "sev2" if of_one_batch else severity
            why = "a single batch is not like the others" if of_one_batch else what
            yield Hit.over(
                span,
                grade if is_known else least,
                "only {value:.1%} of the targets are the token that follows the input: " + why,
                badness=-match.values,
                value=match.values,
                limit=limit,
            )


def is_of_one_batch(match: Series, points: int, last: int, min_match: float = MIN_MATCH) -> bool:
    """Tell whether targets that are wrong at `points` checkpoints, the last of them at step `last`, are those of one batch."""
    return points == 1 and bool((match.values[match.steps > last] >= min_match).any())


def _is_late(explained: Series, *, min_steps: int = 200) -> bool:
    """Tell whether a training has gone on for so long that a model which can learn would have begun to."""
    return len(explained.steps) > 0 and int(explained.steps[-1]) >= min_steps
