"""LOSS009: the loss function is given what it does not take."""

from collections.abc import Iterator

from ckaudit.metrics.loss_function import MISFITS, loss_input_misfit
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series

MESSAGES = dict(
    zip(
        MISFITS,
        (
            "the loss function takes logits and is given probabilities: {value:.0%} of its rows sum to one",
            "the loss function takes log-probabilities and is given other numbers: {value:.0%} of its rows are none",
            "outputs and targets differ in shape: each output is held against the targets of the whole batch",
        ),
        strict=True,
    )
)


@rule("LOSS009", severity="sev1", needs=[loss_input_misfit], unit="1")
def loss_inputs_wrong(
    misfit: Series, *, min_misfit_share: float = 0.99, min_not_log_share: float = 0.5, min_checkpoints: int = 3
) -> Iterator[Hit | Skip]:
    """The loss function is given what it does not take.

    ## What it checks
    The rule measures the share of rows that this loss function does not take. It is a finding where the share is at least
    `min_misfit_share` at every checkpoint that has one, and at least `min_checkpoints` checkpoints have one. Such rows are:

    - probabilities, where the function takes logits;
    - numbers that are no log-probabilities, for nll_loss or ctc_loss; here `min_not_log_share` of the rows is enough, because
      what comes out of log_softmax sums to one in every row, while a model may learn rows that nearly do;
    - outputs whose shape differs from the targets', so that each output meets all targets.
    ## Why it matters
    A second softmax bounds the loss from below and takes most of the gradient away. A negative log-likelihood of raw numbers
    falls for ever. Outputs compared with all targets at once learn the targets' mean. The training runs on, and learns something
    else.
    ## False alarms
    Logits do not happen to sum to one in every row. The output of a single sigmoid unit may lie between 0 and 1 in one batch, but
    not in all of them.
    """
    yield from too_few(misfit, min_checkpoints)
    for label in misfit.labels:
        column = misfit.only(label.__eq__).recorded_rows()
        enough = min_not_log_share if label == "no log-probabilities" else min_misfit_share
        if len(column.steps) >= min_checkpoints and (column.values >= enough).all():
            yield Hit.at(
                column.steps, "sev1", MESSAGES[label], where="loss function", value=float(column.values.min()), limit=enough
            )
