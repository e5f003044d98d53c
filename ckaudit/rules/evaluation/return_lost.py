"""EVAL004: what a policy had learnt is lost: its episodes are worth as little as at first, or less."""

from collections.abc import Iterator

from ckaudit.contract.schema.score_names import EPISODE_RETURN
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.returns import what_is_lost
from ckaudit.run.series import Series


@rule("EVAL004", severity="sev2", needs=[], wants=[microbench_score], unit="1")
def return_lost(
    score: Series | None, *, max_kept: float = 0.2, min_points: int = 15, min_deviations: float = 4.0
) -> Iterator[Hit | Skip]:
    """What a policy had learnt is lost.

    ## What it checks
    The rule takes scores that are named as the return of an episode, from `min_points` values on, by medians of tenths. One of
    these holds:

    - The best median is above the first by `min_deviations` of its own noise, and at the end no more than `max_kept` is left of
      what was gained.
    - The last median is below the first by `min_deviations` of the noise, and nothing was gained before.
    ## Why it matters
    No loss of a policy says how well the policy does: its data and targets change with it. The return does, and nothing else in
    such a log.
    ## False alarms
    The returns are noisy, and sink for a while where a policy tries something: only the end is judged. A curriculum that makes
    the task harder, or an opponent that learns too, rightly lowers them.
    """
    places = [place for place, name in enumerate(score.labels if score is not None else ()) if EPISODE_RETURN.search(name)]
    if score is None or not places:
        yield Skip("not_applicable", "no score is named as the return of an episode")
        return
    if (points := max(int(score.finite[:, place].sum()) for place in places)) < min_points:
        yield Skip("too_few_points", f"{points} returns; {min_points} are needed")
        return
    for place in places:
        rows = score.finite_in(place)
        values = score.values[rows, place]
        if (
            len(values) >= min_points
            and (lost := what_is_lost(values, max_kept=max_kept, min_deviations=min_deviations)) is not None
        ):
            begun, best, end, since = lost
            yield Hit.at(
                score.steps[rows][since:],
                "sev2",
                f"{{where}} ends at {{value:.4g}}, having begun at {begun:.4g} and been at {{limit:.4g}}, by medians of a "
                "tenth of the run",
                where=score.labels[place],
                value=end,
                limit=best,
                worst=-1,
            )
