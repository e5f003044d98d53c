"""Whether two runs saw the same data, in the same order, in updates of the same size."""

from collections.abc import Iterator, Mapping

from ckaudit.contract.schema.diff import Unlike
from ckaudit.diff.question_ids import PER_STEP
from ckaudit.metrics.progress import tokens_per_update
from ckaudit.run.medians import median
from ckaudit.run.run import Run

NAMES = ("batch_hash", "batch_id")


def batches(run: Run) -> dict[int, str]:
    """Return what names the batch of each step: the hash of its inputs, else the loader's own name."""
    for name in NAMES:
        for labels in run.words(name).values():
            return dict(zip(labels.steps, labels.values, strict=True))
        numbers = run.scalar(name)
        if numbers:
            known = numbers.finite[:, 0]
            return dict(zip(numbers.steps[known].tolist(), map(str, numbers.values[known, 0].tolist()), strict=True))
    return {}


def unlike_batches(left: Run, right: Run, *, same: float = 0.9) -> Iterator[Unlike]:
    """Yield where two runs saw other batches.

    Args:
        left: The reference.
        right: The subject.
        same: Share of the batches of one run that are among the other's, from which on it is the same data in another order;
            the ends of two records need not meet.
    """
    mine, theirs = batches(left), batches(right)
    shared = sorted(mine.keys() & theirs.keys())
    if not shared:
        if bool(mine) != bool(theirs):
            message = (
                f"only the {'first' if mine else 'second'} says which batches it saw: whether both saw the same is not known"
            )
            yield _data(f"{len(mine)} batches" if mine else None, f"{len(theirs)} batches" if theirs else None, message, [])
        return
    apart = [step for step in shared if mine[step] != theirs[step]]
    if not apart:
        return
    first, agree = apart[0], 1 - len(apart) / len(shared)
    common = _common(mine, theirs, shared)
    what = (
        "the same batches in another order"
        if common >= same
        else "other batches"
        if common == 0
        else f"batches of which {common:.0%} are among those of the first"
    )
    message = f"from step {first} on the second saw {what}: {agree:.1%} of {len(shared):,} steps have the same batch"
    yield _data(mine[first], theirs[first], message, ["exact"])


def _common(mine: Mapping[int, str], theirs: Mapping[int, str], shared: list[int]) -> float:
    """Return the share of the second run's different batches that the first saw at any time."""
    seen = {mine[step] for step in shared}
    batches = {theirs[step] for step in shared}
    return len(batches & seen) / len(batches)


def _data(left: str | None, right: str | None, message: str, invalidates: list[str]) -> Unlike:
    return Unlike(name="data_order", kind="data", left=left, right=right, invalidates=invalidates, message=message)


def unlike_updates(left: Run, right: Run, *, share: float = 0.01) -> Iterator[Unlike]:
    """Yield that an update is made of more or fewer tokens in one run, medians `share` apart: padding alone makes them wander."""
    mine, theirs = _median(left), _median(right)
    if mine is None or theirs is None or abs(theirs - mine) <= share * max(mine, theirs):
        return
    message = (
        f"an update has {theirs:,.0f} tokens in the second and {mine:,.0f} in the first: losses compare by tokens "
        "(--align tokens), not by steps"
    )
    yield Unlike(
        name="tokens_per_update",
        kind="tokens",
        left=f"{mine:.6g}",
        right=f"{theirs:.6g}",
        invalidates=[*PER_STEP],
        message=message,
    )


def _median(run: Run) -> float | None:
    sizes = tokens_per_update(run)
    known = sizes.values[sizes.finite & (sizes.values > 0)]
    return median(known) if known.size else None
