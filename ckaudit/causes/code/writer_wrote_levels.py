"""The writer wrote the levels of percentiles in place of their values."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, supports
from ckaudit.contract.contradictions import PERCENTILES_ARE_LEVELS
from ckaudit.contract.schema.report import Evidence
from ckaudit.rules.files.contradicted_claim import contradicted_claim
from ckaudit.rules.precision.impossible_value import impossible_value


@cause(
    prior=0.0,
    good_checkpoint="newest",
    explains=[PERCENTILES_ARE_LEVELS],
    follows=[contradicted_claim, impossible_value],
    knob="Write the values at these levels, as numpy.percentile returns them, not the levels that it is given.",
    inspect="The writer's line that fills `percentiles`.",
    runbook="The training is well; only these seven numbers are lost, and cannot be made again from the file.",
)
def writer_wrote_levels(findings: Findings, *, decisive: float = 4.0) -> Iterator[Evidence]:
    """The writer wrote the levels of percentiles in place of their values.

    Seven numbers equal to the seven levels are decisive. Log odds are on the common scale (`causes/cause.py`).
    """
    if levels := findings.first(PERCENTILES_ARE_LEVELS):
        yield supports(decisive, levels.message, levels)
