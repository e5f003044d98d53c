"""MODEL001: the tensors are not those that were there before."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.weights import weight_norm
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

TIED = frozenset({"tie_word_embeddings", "tie_embeddings", "tied_embeddings", "tie_weights", "weight_tying", "share_embeddings"})
"""Names by which a configuration says that the embedding of the tokens is the head as well."""


@rule("MODEL001", severity="sev1", needs=[weight_norm], wants=[FACTS], unit="tensors")
def parameter_count_changed(norm: Series, facts: Manifest | None, *, min_points: int = 2) -> Iterator[Hit | Skip]:
    """The tensors are not those that were there before, or that the configuration says.

    ## What it checks
    Which weight tensors each checkpoint names. A tensor that is in all checkpoints from some step on and in none before, or
    the other way round, came or went (at least `min_points` checkpoints are compared). And whether there is a head of the shape
    of an embedding where the user's configuration says that the two are one matrix (`tie_word_embeddings` and the like): sev2.
    ## Why it matters
    A tie between embedding and head was lost at a resume, or another model was loaded: two matrices drift apart where one
    was meant, and the optimizer knows nothing of the new one.
    ## False alarms
    A writer that names other tensors each time tells nothing: only a single change that splits the run in two counts. A model
    that grows on purpose changes its tensors too.
    """
    yield from _untied(norm, facts)
    yield from too_few(norm, min_points)
    rows = norm.recorded_rows()
    if rows.recorded.all() or len(rows.steps) < min_points:
        return
    changes = np.flatnonzero((rows.recorded[1:] != rows.recorded[:-1]).any(axis=1)) + 1
    if len(changes) != 1:
        return
    switch = int(changes[0])  # all tensors that come or go do so at this row
    step = int(rows.steps[switch])
    for came, what in ((True, "new"), (False, "gone")):
        names = [label for label, there in zip(rows.labels, rows.recorded[switch] == came, strict=True) if there]
        changed = [name for name in names if not rows.recorded[:, rows.labels.index(name)].all()]
        if changed:
            yield Hit(
                severity="sev1",
                where=changed[0],
                also=tuple(changed[1:]),
                first=step,
                last=int(rows.steps[-1]),
                worst=step,
                value=float(rows.recorded[switch].sum()),
                limit=float(rows.recorded[switch - 1].sum()),
                points=len(rows.steps) - switch,
                joined_by=step,
                message="{where} is " + what + ": from step {first} on there are {value:.0f} tensors, before {limit:.0f}",
            )


def _untied(norm: Series, facts: Manifest | None) -> Iterator[Hit]:
    """Yield a head beside an embedding of its shape where the user's configuration ties them."""
    config = facts.config if facts is not None and facts.config is not UNSET else {}
    model = config.get("model")
    said = {name for part in (config, model) if isinstance(part, dict) for name, value in part.items() if value is True}
    if not said & TIED or not len(norm.steps):
        return
    tensors = table_of(facts)
    shapes = {name: tensors.facts[name].shape for name in norm.labels if name in tensors.facts}
    embeddings = {tuple(shape): name for name, shape in shapes.items() if shape and tensors.kind(name) == "embedding"}
    for head in (name for name in shapes if tensors.kind(name) == "head"):
        embedding = embeddings.get(tuple(shapes[head] or ()))
        if embedding is not None:
            yield Hit.at(
                norm.steps,
                "sev2",
                f"{{where}} and {embedding} are two matrices, and the configuration says that they are one",
                where=head,
                value=2.0,
                limit=1.0,
                worst=0,
            )
