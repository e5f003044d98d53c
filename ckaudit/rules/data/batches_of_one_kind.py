"""DATA013: each batch holds targets of one kind."""

from collections.abc import Iterator

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss_function import batch_target_spread
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.run_facts import why_loss_need_not_fall
from ckaudit.run.series import Series


@rule("DATA013", severity="sev2", needs=[batch_target_spread], wants=[FACTS], unit="1")
def batches_of_one_kind(
    spread: Series, facts: Manifest | None, *, sev2_spread: float = 0.25, note_spread: float = 0.5, min_checkpoints: int = 3
) -> Iterator[Hit | Skip]:
    """Each batch holds targets of one kind.

    ## What it checks
    The spread of a batch's targets over that of all targets seen, in the median of at least `min_checkpoints` checkpoints. The
    spread is an entropy where targets are classes, and a variance where they are numbers. Below `sev2_spread` the batches are
    sorted: sev2; below `note_spread` it is a note.
    ## Why it matters
    The samples of a batch are to be independent. Where they come class by class, each update teaches the class of the day and
    takes back the one before: the loss goes up and down, and the gradients of successive steps oppose each other.
    ## False alarms
    A batch for each task, series or speaker has targets that are alike, which may be meant: such spreads are rarely below half.
    Optimizers that take turns have batches of their own kinds and are not judged, nor is a policy, whose actions become alike.
    """
    if why := why_loss_need_not_fall(facts):
        yield Skip("not_applicable", why)
        return
    yield from too_few(spread, min_checkpoints)
    known = spread.finite_in(0)
    if known.sum() < min_checkpoints or (middle := median(spread.values[known, 0])) >= note_spread:
        return
    yield Hit.at(
        spread.steps[known],
        "sev2" if middle < sev2_spread else "note",
        "the targets of a batch are {value:.0%} as varied as those of all batches: the data are not shuffled",
        where="targets",
        value=middle,
        limit=sev2_spread if middle < sev2_spread else note_spread,
    )
