"""The codes of departures from the band of a run's siblings."""

from functools import partial

from ckaudit.contract import violations

_kind = partial(violations.kind, severity="sev2", found_by=("triage --like",))

_PART = "Look at what left the band first: the change that did it is nearest to it; ckaudit diff SIBLING RUN shows all of both."

LOSS = _kind(
    "SIB001",
    "loss_unlike_siblings",
    title="The training loss is higher than in healthy runs of the same configuration; lower is a note.",
    help=_PART,
)
HELD_OUT_LOSS = _kind(
    "SIB002",
    "held_out_loss_unlike_siblings",
    title="The held-out loss is higher than in healthy runs of the same configuration; lower is a note.",
    help="Compare with the training loss: only the held-out one higher means overfitting, or another evaluation.",
)
GRADIENT = _kind(
    "SIB003",
    "gradient_unlike_siblings",
    title="Gradients of the model or a block are larger or smaller than in healthy runs of the same configuration.",
    help="Look at the blocks that are named, and at what differs before them: ckaudit diff SIBLING RUN shows where both part.",
)
UPDATE = _kind(
    "SIB004",
    "update_unlike_siblings",
    title="Updates of the model or a block are larger or smaller than in healthy runs of the same configuration.",
    help="Compare learning rate, optimizer and what is frozen of the blocks that are named with those of a sibling.",
)
ATTENTION = _kind(
    "SIB005",
    "attention_unlike_siblings",
    title="The attention of a layer is sharper or more even than in healthy runs of the same configuration.",
    help="Look at that layer's queries, keys and mask; ckaudit diff SIBLING RUN shows its heads.",
)
SPEED = _kind(
    "SIB006",
    "slower_than_siblings",
    title="Less goes through per second than in healthy runs of the same configuration on the same kind of machine.",
    help="Compare machines, input and what else they did; ckaudit metrics RUN step_time shows when it began.",
)
RATE = _kind(
    "SIB007",
    "learning_rate_unlike_siblings",
    title="The learning rate leaves the course that all healthy runs of the same configuration share.",
    help="Look at the schedule and what it counts, and at what was restored on a resume.",
)

KINDS = (LOSS, HELD_OUT_LOSS, GRADIENT, UPDATE, ATTENTION, SPEED, RATE)
