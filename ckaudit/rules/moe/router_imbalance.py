"""MOE001: experts are used very unevenly."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.routing import expert_entropy, moe_util_entropy
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Mask, Series
from ckaudit.run.spans import reaching_back, spans


@rule("MOE001", severity="sev1", needs=[moe_util_entropy], wants=[expert_entropy], unit="1")
def router_imbalance(
    used: Series,
    layers: Series | None,
    *,
    sev2_entropy: float = 0.5,
    sev1_entropy: float = 0.25,
    warmup: int = 20,
    min_points: int = 3,
    max_fall: float = 0.15,
    lasting_steps: int = 50,
) -> Iterator[Hit | Skip]:
    """Experts are used very unevenly.

    ## What it checks
    The utilisation entropy of each layer's experts, 1 for an even spread (M27), after the first `warmup` steps or, in a shorter
    log, after its first third:

    - An entropy below `sev2_entropy` at `min_points` points in a row is sev2.
    - An entropy below `sev1_entropy`, a quarter, is sev1: nearly all tokens go to one expert (SEV1-5).
    - An entropy that stays `max_fall` below the best it had, for `lasting_steps` steps and `min_points` points, is sev2: the
      layer is on its way to one expert.
    - In the lab's dev split healthy routers start at 0.5 and are above 0.75 from step 80 on, and none that fell by 0.15 took 30
      steps to recover; collapsed routers stay below 0.25.
    ## Why it matters
    Experts without tokens learn nothing, and the one with all of them drops those that it has no room for.
    ## False alarms
    Routers are uneven in their first steps, before the balancing loss has acted.
    """
    series = used if layers is None else layers
    who = "the router" if series.labels == used.labels else "{where}"  # a layer by its name
    if series.points < min_points:
        yield from too_few(series, min_points)
        return
    late = (np.arange(len(series.steps)) >= min(int((series.steps <= warmup).sum()), len(series.steps) // 3))[:, None]
    min_points = min(min_points, max(2, series.points // 3))
    worst = (series.values < sev1_entropy) & late
    for span in spans(series, worst, min_points=min_points):
        yield Hit.over(
            span,
            "sev1",
            who + " sends nearly all tokens to one expert: its utilisation entropy is {value:.2g}",
            badness=-series.values,
            value=series.values,
            limit=sev1_entropy,
        )
    uneven = (series.values < sev2_entropy) & late & ~worst
    for span in spans(series, uneven, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            who + " uses its experts unevenly: its utilisation entropy is {value:.2g}, below {limit:.2g}",
            badness=-series.values,
            value=series.values,
            limit=sev2_entropy,
        )
    yield from _falling(series, late, late & ~np.any((worst | uneven), axis=0), max_fall, min_points, lasting_steps, who)


def _falling(
    series: Series, late: Mask, judged: Mask, max_fall: float, min_points: int, lasting_steps: int, who: str
) -> Iterator[Hit]:
    """Yield the layers whose entropy stays `max_fall` below its best, from the first step of the fall on."""
    best = np.fmax.accumulate(series.values, axis=0)
    for span in spans(series, (series.values < best - max_fall) & judged, min_points=min_points):
        if span.last - span.first >= lasting_steps:
            whole = reaching_back(span, series, (series.values < best - max_fall / 10) & late)
            yield Hit.over(
                whole,
                "sev2",
                who + " uses its experts ever less evenly: its utilisation entropy fell to {value:.2g}, by more than {limit:.2g}",
                badness=-series.values,
                value=series.values,
                limit=max_fall,
            )
