"""MODEL002: dropout removes more than it leaves."""

from collections.abc import Iterator

from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.rules.rule import FACTS, Hit, Skip, rule


@rule("MODEL002", severity="sev2", needs=[FACTS], unit="1")
def dropout_rate_high(facts: Manifest, *, max_rate: float = 0.5, max_rate_before_head: float = 0.8) -> Iterator[Hit | Skip]:
    """Dropout removes more than it leaves.

    ## What it checks
    The rule takes the largest dropout probability among the model's modules, as the recorder found it before the first step.

    - A probability above `max_rate` is sev2. Srivastava et al. 2014 drop that half in the widest layers, and less elsewhere.
    - The one dropout before the classifier of a pooled network, where nothing but the answer follows, is a note up to
      `max_rate_before_head`: MobileNetV2's default is 0.8.
    ## Why it matters
    What is left is scaled up to make good for it, and so is its noise: at a rate of 0.9 each value is zero or ten times itself.
    The training loss stays far above what the same weights reach without dropout.
    ## False alarms
    A rate may be raised in one small place on purpose. A rate that changes while the model trains is judged as it was at the
    start. Dropout that is neither a module nor an attribute of one is not seen.
    """
    rate = facts.dropout
    if rate is UNSET:
        yield Skip("not_recorded", "run.json does not say how much the modules of the model drop")
        return
    if isinstance(rate, str) or rate <= max_rate:
        return
    where = None if facts.dropout_module is UNSET else facts.dropout_module
    yield Hit.at(
        [0],
        "note" if _is_before_head(where) and rate <= max_rate_before_head else "sev2",
        f"{'a module' if where is None else '{where}'} drops {{value:.3g}} of what goes through it: more than it leaves",
        where=where,
        value=rate,
        limit=max_rate,
        worst=0,
    )


def _is_before_head(module: str | None) -> bool:
    """Tell whether a module lies outside the stack of layers, with the classifier or at the top of the model."""
    return module is not None and module.partition(".")[0] in ("classifier", "head", "fc", "score", module)
