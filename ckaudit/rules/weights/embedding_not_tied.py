"""MODEL003: embedding and head are two matrices, and the configuration ties them."""

from collections.abc import Iterator

from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.weights import weight_norm
from ckaudit.rules.rule import FACTS, Hit, rule
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

TIED = frozenset({"tie_word_embeddings", "tie_embeddings", "tied_embeddings", "tie_weights", "weight_tying", "share_embeddings"})
"""Configuration keys that tie the token embedding to the head."""


@rule("MODEL003", severity="sev2", needs=[weight_norm, FACTS], unit="tensors")
def embedding_not_tied(norm: Series, facts: Manifest) -> Iterator[Hit]:
    """Embedding and head are two matrices, and the configuration says that they are one.

    ## What it checks
    Whether there is a head of the shape of an embedding where the user's own configuration in run.json ties the two
    (`tie_word_embeddings` and the like).
    ## Why it matters
    The tie was lost when the model was built, loaded or wrapped. The two matrices drift apart, the model is larger than planned,
    and loading it by its configuration drops one of them.
    ## False alarms
    A configuration may tie the two on paper alone, as one that was taken over from another model.
    """
    if not _says_tied(facts) or not len(norm.steps):
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


def _says_tied(facts: Manifest) -> bool:
    """Tell whether the user's configuration, or its part on the model, ties the head to the embedding."""
    config = facts.config if facts.config is not UNSET else {}
    parts = (part for part in (config, config.get("model")) if isinstance(part, dict))
    return any(value is True and name in TIED for part in parts for name, value in part.items())
