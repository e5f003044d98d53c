"""The codes of a comparison's answers when they are reported as findings: in SARIF, JUnit, annotations, and `explain`."""

from functools import partial

from ckaudit.contract import violations

_kind = partial(violations.kind, found_by=("diff", "gate"))

FINAL_LOSS = _kind(
    "DIFF001",
    "final_loss",
    "sev1",
    "The last loss is worse than the reference's, by more than noise explains.",
    "Look at where the runs part: what left the band first is nearest to the change that did it.",
)
SMOOTHED_LOSS = _kind(
    "DIFF002",
    "smoothed_loss",
    "sev1",
    "The smoothed loss at the end is worse than the reference's, by more than noise explains.",
    "Look at where the runs part; the smoothed loss hides no spike, so look at stability too.",
)
LOSS_AT_EQUAL_TOKENS = _kind(
    "DIFF003",
    "loss_at_equal_tokens",
    "sev1",
    "After as many tokens the loss is worse than the reference's.",
    "Compare batch size and learning rate: equal steps of unequal batches are not equal training.",
)
LOSS_AT_EQUAL_TIME = _kind(
    "DIFF004",
    "loss_at_equal_time",
    "sev2",
    "After as much time the loss is worse than the reference's.",
    "Compare speed: the loss at equal steps says whether learning or the machine is behind it.",
)
STEPS_TO_LOSS = _kind(
    "DIFF005",
    "steps_to_loss",
    "sev2",
    "It takes more steps to the same loss, or never gets there.",
    "Compare learning rate, warm-up and batch size.",
)
VALIDATION_LOSS = _kind(
    "DIFF006",
    "validation_loss",
    "sev1",
    "The validation loss is worse than the reference's, by more than noise explains.",
    "Compare it with the training loss: only the one worse means overfitting, or another evaluation.",
)
STABILITY = _kind(
    "DIFF007",
    "stability",
    "sev1",
    "The loss has more spikes than the reference's.",
    "ckaudit triage says what was first at each spike; lower the learning rate or the clipping norm.",
)
CLIP_RATE = _kind(
    "DIFF008",
    "clip_rate",
    "sev2",
    "Gradients are clipped more often than the reference's.",
    "Compare gradient norms: larger ones ask for a lower learning rate, equal ones for the clipping norm that was set.",
)
SPEED = _kind(
    "DIFF009",
    "speed",
    "sev2",
    "A step takes longer than the reference's.",
    "Compare machines and input; ckaudit triage says what the time of a step goes into.",
)
MEMORY = _kind(
    "DIFF010",
    "memory",
    "sev2",
    "It takes more memory than the reference.",
    "Compare batch size, sequence length, precision and what is kept for the backward pass.",
)
HEALTH = _kind(
    "DIFF011",
    "health",
    "sev1",
    "It has findings that the reference does not have.",
    "ckaudit triage names causes for them, and what to try first.",
)
VALIDATION_SLICES = _kind(
    "DIFF012",
    "validation_slices",
    "sev1",
    "A slice of the validation set is worse than the reference's, by more than noise explains.",
    "Look at the data of that slice: its share in the training mix, its filters, its tokens.",
)
EXACT = _kind(
    "DIFF013",
    "exact",
    "sev1",
    "A run that should repeat another to the last bit does not.",
    "The message names the first value that differs; the notes name what most likely makes it so.",
)
PARITY = _kind(
    "DIFF014",
    "parity",
    "sev1",
    "Two implementations of one model differ by more than their precision explains.",
    "Compare the layer that is named with the reference, output by output, for one batch.",
)
RESUME = _kind(
    "DIFF015",
    "resume",
    "sev1",
    "Something did not go on after a resume as it was before.",
    "Restore what is named together with the weights; ckaudit explain optimizer_state_reset tells more.",
)
REPLICAS = _kind(
    "DIFF016",
    "replicas",
    "sev1",
    "Ranks that should hold the same parameters do not.",
    "Stop the run: take the weights of a rank that agrees with most others, and look at the machine of the one that does not.",
)
OTHER = _kind(
    "DIFF019",
    "other_question",
    "sev2",
    "Another question, named in the message, has a worse answer than the reference's.",
    "Read the message; ckaudit diff -v shows the numbers.",
)
PARTING = _kind(
    "DIFF020",
    "runs_part",
    "sev2",
    "The runs part by more than noise explains, and no question tells better from worse.",
    "Look at what left the band first, and whether that was the change.",
)
UNLIKE = _kind(
    "DIFF021",
    "not_comparable",
    "sev2",
    "The runs are not alike in something that leaves questions without an answer.",
    "Make the runs alike in it, or align them by tokens: ckaudit diff --align tokens.",
)
GATE = _kind(
    "DIFF022",
    "gate",
    "sev1",
    "The canary is worse than the good runs, or cannot be judged against them.",
    "The other DIFF codes say in what; what counts, and what may be worse, stands in the policy under [gate].",
)

_BY_NAME = {kind.name: kind for kind in violations.KINDS.values() if kind.code.startswith("DIFF")}


def kind_of(question: str) -> violations.ViolationKind:
    """Return the kind of a question's worse answer; all questions on parity share one kind, and so do those on a resume.

    >>> kind_of("speed").code, kind_of("resume_rate").code, kind_of("something").code
    ('DIFF009', 'DIFF015', 'DIFF019')
    """
    return _BY_NAME.get(question) or _BY_NAME.get(question.partition("_")[0]) or OTHER
