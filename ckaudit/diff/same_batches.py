"""Whether two runs saw the same batches, in the same order, in updates of the same size."""

from collections.abc import Iterator, Mapping

from ckaudit.contract.schema.diff import Unlike
from ckaudit.metrics.progress import tokens_per_update
from ckaudit.run.medians import median
from ckaudit.run.run import Run

BATCH_NAMES = ("batch_hash", "batch_id")

PER_STEP = ("final_loss", "smoothed_loss", "steps_to_loss")
"""Questions that updates of another size invalidate: losses by steps."""


def batches(run: Run) -> dict[int, str]:
    """Return the identity of the batch of each step: the hash of its inputs, else the loader's name."""
    for name in BATCH_NAMES:
        for labels in run.words(name).values():
            return dict(zip(labels.steps, labels.values, strict=True))
        numbers = run.scalar(name)
        if numbers:
            known = numbers.finite[:, 0]
            return dict(zip(numbers.steps[known].tolist(), map(str, numbers.values[known, 0].tolist()), strict=True))
    return {}


def batch_mismatches(left: Run, right: Run, *, same: float = 0.9) -> Iterator[Unlike]:
    """Yield the differences in the batches of two runs.

    Args:
        left: The reference.
        right: The subject.
        same: Share of common batches from which on the data is the same in another order; the records may end at different steps.
    """
    of_first, of_second = batches(left), batches(right)
    shared = sorted(of_first.keys() & of_second.keys())
    if not shared:
        if bool(of_first) != bool(of_second):
            which = "first" if of_first else "second"
            message = f"only the {which} says which batches it saw: whether both saw the same is not known"
            counts = [f"{len(named)} batches" if named else None for named in (of_first, of_second)]
            yield _data(counts[0], counts[1], message, [])
        return
    apart = [step for step in shared if of_first[step] != of_second[step]]
    if not apart:
        return
    first, agree = apart[0], 1 - len(apart) / len(shared)
    common = _common(of_first, of_second, shared)
    what = (
        "the same batches in another order"
        if common >= same
        else "other batches"
        if common == 0
        else f"batches of which {common:.0%} are among those of the first"
    )
    message = f"from step {first} on the second saw {what}: {agree:.1%} of {len(shared):,} steps have the same batch"
    yield _data(of_first[first], of_second[first], message, ["exact"])


def _common(of_first: Mapping[int, str], of_second: Mapping[int, str], shared: list[int]) -> float:
    """Return the share of the second run's distinct batches that the first saw at any time."""
    seen = {of_first[step] for step in shared}
    batches = {of_second[step] for step in shared}
    return len(batches & seen) / len(batches)


def _data(left: str | None, right: str | None, message: str, invalidates: list[str]) -> Unlike:
    return Unlike(name="data_order", kind="data", left=left, right=right, invalidates=invalidates, message=message)


def update_mismatches(left: Run, right: Run, *, share: float = 0.01) -> Iterator[Unlike]:
    """Yield that an update has more or fewer tokens in one run, by more than `share` of the median: padding alone varies less."""
    of_first, of_second = _median(left), _median(right)
    if of_first is None or of_second is None or abs(of_second - of_first) <= share * max(of_first, of_second):
        return
    message = (
        f"an update has {of_second:,.0f} tokens in the second and {of_first:,.0f} in the first: losses compare by tokens "
        "(--align tokens), not by steps"
    )
    yield Unlike(
        name="tokens_per_update",
        kind="tokens",
        left=f"{of_first:.6g}",
        right=f"{of_second:.6g}",
        invalidates=[*PER_STEP],
        message=message,
    )


def _median(run: Run) -> float | None:
    sizes = tokens_per_update(run)
    known = sizes.values[sizes.finite & (sizes.values > 0)]
    return median(known) if known.size else None
