"""Parts of a report that several formats share: policy and baseline, derived numbers, the table of resume checkpoints."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from ckaudit.contract.schema.report import Derived, GradToWeight, Report, ResumeCheckpoint, Suppressed, Tau
from ckaudit.reports.words import number
from ckaudit.wording import plural

DERIVED = ("divergence_step", "tau", "spike_flags", "grad_to_weight")
CHECKPOINT_HEAD = ("step", "size", "written (UTC)", "took", "weights", "optimizer", "good", "lacks", "where")
NUMBER_COLUMNS = frozenset({0, 1, 3, 4, 5})  # right-aligned columns
MISSING_COLUMN = CHECKPOINT_HEAD.index("lacks")
NOTHING = "-"


def policy_sentences(report: Report, *, limit: int = 5) -> list[str]:
    """Return sentences on the policy in force, how many findings do not count and why, and stale entries of the baseline.

    Args:
        report: The report.
        limit: Number of stale entries that are named; the others are only counted.
    """
    return [*_policy(report), *_counts(report), *_stale(report, limit)]


def suppressed_of(report: Report, code: str) -> list[Suppressed]:
    """Return the suppressed findings of one rule or violation."""
    return [suppressed for suppressed in report.suppressed if suppressed.finding.code == code]


def why_suppressed(suppressed: Suppressed) -> str:
    """Return the reason for suppressing a finding, with its last day if there is one."""
    return suppressed.reason + (f" (until {suppressed.until})" if suppressed.until else "")


def _policy(report: Report) -> Iterator[str]:
    policy = report.policy
    if policy is None:
        return
    profiles = f" (profile {' and '.join(policy.profiles)})" if policy.profiles else ""
    yield f"policy {policy.file}{profiles}: {'; '.join(policy.changes) or 'nothing changed'}"


def _counts(report: Report) -> Iterator[str]:
    if not report.suppressed:
        return
    by = Counter(suppressed.by for suppressed in report.suppressed)
    known, ignored, normal = (by[who] for who in ("baseline", "policy", "siblings"))
    parts = [f"{known:,} accepted in {report.baseline}"] if known else []
    if ignored:
        parts.append(f"{ignored:,} ignored by {report.policy.file if report.policy else 'the policy'}")
    if normal:
        parts.append(f"{normal:,} normal among its siblings")
    total = len(report.suppressed)
    yield f"{plural(total, 'finding')} {'does' if total == 1 else 'do'} not count: {', '.join(parts)}"


def _stale(report: Report, limit: int) -> Iterator[str]:
    if not report.stale:
        return
    count = len(report.stale)
    named = [
        " ".join(part for part in (accepted.code, accepted.file, accepted.where) if part) for accepted in report.stale[:limit]
    ]
    listed = ", ".join(dict.fromkeys(named)) + (f" and {count - limit:,} more" if count > limit else "")
    one = count == 1
    yield (
        f"{count:,} {'entry' if one else 'entries'} of {report.baseline} {'matches' if one else 'match'} nothing any more: "
        f"{listed}; --update-baseline drops {'it' if one else 'them'}"
    )


# The four derived numbers in words.
def derived_numbers(report: Report, *, missing: bool = False) -> list[tuple[str, str]]:
    """Return name and value of each known derived number; with `missing`, also the reason for each of the others."""
    derived = report.derived
    if derived is None:
        return []
    known = dict(_known_numbers(derived))
    rest = {name: f"not known: {derived.reasons[name]}" for name in DERIVED if missing and name in derived.reasons}
    return [(name, (known | rest)[name]) for name in DERIVED if name in known or name in rest]


def _known_numbers(derived: Derived) -> Iterator[tuple[str, str]]:
    if derived.divergence_step is not None:
        yield "divergence_step", f"{derived.divergence_step}"
    if derived.tau is not None:
        yield "tau", _tau(derived.tau)
    if derived.spike_flags is not None:
        yield "spike_flags", _flagged_steps(derived.spike_flags, derived.spike_flags_count or 0)
    if derived.grad_to_weight is not None:
        yield "grad_to_weight", _ratio(derived.grad_to_weight)


def _tau(tau: Tau) -> str:
    easy, hard = tau.slices
    trend = "" if tau.trend is None else f", {number(tau.trend, digits=2)} per 1,000 steps"
    peak = "" if tau.peak_step == tau.last_step else f"; at most {number(tau.peak, digits=3)} at step {tau.peak_step}"
    return f"{number(tau.last, digits=3)} nats at step {tau.last_step} ({hard} less {easy}{trend}){peak}"


def _flagged_steps(steps: list[int], count: int, *, max_steps: int = 6) -> str:
    if not count:
        return "none"
    more = f" and {count - max_steps:,} more" if count > max_steps else ""
    return f"{count:,}: step{'s' if count > 1 else ''} {', '.join(map(str, steps[:max_steps]))}{more}"


def _ratio(ratio: GradToWeight) -> str:
    outside = [f"{count} {where}" for count, where in ((ratio.below, "below 1e-4"), (ratio.above, "above 0.1")) if count]
    ends = f"{number(ratio.min, digits=2)} ({ratio.min_where}) to {number(ratio.max, digits=2)} ({ratio.max_where})"
    hint = f"; {', '.join(outside)} of {ratio.tensors} tensors, under Adam only a hint" if outside else ""
    return f"{ends} at step {ratio.step}{hint}"


# The resume checkpoints as the cells of a table.
def resume_checkpoints(report: Report) -> Sequence[ResumeCheckpoint]:
    """Return the checkpoints of a report; empty if the command does not look for any."""
    return () if report.resume_checkpoints is UNSET else report.resume_checkpoints


def checkpoint_rows(checkpoints: Sequence[ResumeCheckpoint]) -> list[tuple[str, ...]]:
    """Return a row of cells for each checkpoint, in the order of `HEAD`."""
    return [
        (
            (
                NOTHING if checkpoint.step is None else f"{checkpoint.step:,}",
                byte_size(checkpoint.size),
                _time(checkpoint.written),
                NOTHING if checkpoint.seconds is None else f"{checkpoint.seconds:,.1f} s",
                byte_size(checkpoint.weight_bytes) if checkpoint.weight_bytes else NOTHING,
                byte_size(checkpoint.optimizer_bytes) if checkpoint.optimizer_bytes else NOTHING,
                {True: "yes", False: "NO", None: "not judged"}[checkpoint.ok],
                missing_parts(checkpoint),
                checkpoint.name,
            )
        )
        for checkpoint in checkpoints
    ]


def missing_parts(checkpoint: ResumeCheckpoint) -> str:
    """Return what a checkpoint lacks, in words; a question mark if nothing of it could be read."""
    return (", ".join(name.replace("_", " ") for name in checkpoint.absent) or NOTHING) if checkpoint.form else "?"


def _time(seconds: float | None) -> str:
    try:
        return NOTHING if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):
        return NOTHING


def byte_size(size: float) -> str:
    """Return a number of bytes in decimal units.

    >>> byte_size(999), byte_size(87_270), byte_size(2_400_000_000)
    ('999 B', '87.3 kB', '2.4 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
