"""GRAD003: a trainable tensor gets no gradient."""

from collections.abc import Iterator

from ckaudit.contract.manifest import Manifest
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.words import element_type
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.cancelled import cancelled
from ckaudit.run.series import Series
from ckaudit.run.spans import spans
from ckaudit.run.tensors import table_of


@rule("GRAD003", severity="sev2", needs=[gradient_norm], wants=[FACTS, element_type], unit="1", memory=2)
def dead_parameter(
    norm: Series,
    facts: Manifest | None,
    types: Series | None,
    *,
    alive: float = 1e-7,
    dead: float = 1e-10,
    min_points: int = 2,
    expert_points: int = 10,
) -> Iterator[Hit | Skip]:
    """A trainable tensor gets no gradient.

    ## What it checks
    The gradient norm of every trainable tensor: above `alive` is well, below `dead` or exactly zero at `min_points`
    checkpoints in a row is dead; between the two, or in a single checkpoint, is noted (playbook D1.3). An expert of a
    mixture is dead after `expert_points` (lab: healthy ones stay without a token for up to 5), and noted before.
    ## Why it matters
    The tensor does not learn; something between it and the loss blocks the path: a mask, a zero factor, a detached
    branch.
    ## False alarms
    Tensors that run.json calls frozen are left out. A gradient held elsewhere is not recorded, and is not judged here. A
    bias that a normalization subtracts or a softmax is blind to has none by mathematics, while the weight of its module has
    one: it is left out. An expert that no token was sent to has no gradient, and most of them find their tokens later.
    """
    tensors = table_of(facts)
    by_nature = cancelled(norm, tensors, types)
    trainable = norm.only(lambda name: tensors.is_trainable(name) and name not in by_nature)
    yield from too_few(norm, min_points)
    for span in spans(trainable, trainable.values < dead, min_points=min_points):
        early = span.points < expert_points and tensors.is_expert(span.label)
        yield Hit.over(
            span, "note" if early else "sev2", "{where} gets no gradient: its norm is {value:.2g}, below {limit:.0e}",
            badness=-trainable.values, value=trainable.values, limit=dead,
        )  # fmt: skip
    faint = (trainable.values < alive) & ((trainable.values >= dead) | (norm.points < min_points))
    for span in spans(trainable, faint, min_points=min(min_points, norm.points)):
        yield Hit.over(
            span, "note", "{where} gets hardly any gradient: its norm is {value:.2g}, below {limit:.0e}",
            badness=-trainable.values, value=trainable.values, limit=alive,
        )  # fmt: skip
