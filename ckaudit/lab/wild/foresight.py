"""Foresight: how many steps before the loss shows a fault it is reported, each recording judged as it stood at each step."""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from msgspec import Struct

from ckaudit.contract.io.files import SCALARS_NAME
from ckaudit.lab.score.scoreboard import Share, share
from ckaudit.lab.score.verdict import COUNTING
from ckaudit.lab.wild.forms import Form, as_form
from ckaudit.lab.wild.pair import CLOCK, HEALTHY, ILL, PairNote, ends
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, difference_noise
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Steps


class Foresight(Struct, frozen=True, kw_only=True):
    """What was reported of one draw in one form, and when.

    Attributes:
        fault: The fault.
        form: The form.
        onset: First step at which the fault acts.
        left: Step at which the loss leaves its twin's for good; None: it never does.
        warnings: First step at which a true warning is given, by code: one that the true cause, or one as good, accounts for, and
            that the twin was not given by then.
        alarms: First step at which anything is told of the twin, by code.
        is_healthy: Whether the twin learns anything.
    """

    fault: str
    form: Form
    onset: int
    left: int | None
    warnings: Mapping[str, int]
    alarms: Mapping[str, int]
    is_healthy: bool


def foresight_of(folder: Path, pair: PairNote, form: Form, *, is_healthy: bool) -> Foresight:
    """Judge a draw and its twin as they stood at step after step."""
    true, alarms = codes_of(pair), first_steps_by_code(folder / HEALTHY, form)
    warnings = first_steps_by_code(folder / ILL, form, since=pair.onset if pair.onset > 1 else 0)
    return Foresight(
        fault=pair.fault,
        form=form,
        onset=pair.onset,
        left=leaves_at(*losses(folder / HEALTHY), *losses(folder / ILL), onset=pair.onset),
        warnings={code: step for code, step in warnings.items() if code in true and step < alarms.get(code, step + 1)},
        alarms=alarms,
        is_healthy=is_healthy,
    )


def codes_of(pair: PairNote) -> frozenset[str]:
    """Return the codes of the rules that the true cause of a fault, or one as good, explains or brings with it."""
    from ckaudit.causes import causes

    known = [causes()[name] for name in (pair.truth, *pair.acceptable)]
    return frozenset(sign.code for cause in known for sign in (*cause.explains, *cause.follows))


def first_steps_by_code(recording: Path, form: Form, *, since: int = 0, looks: int = 40) -> dict[str, int]:
    """Return by code the first step at which a finding of sev0 to sev2 is made of a recording; the clock's are left out.

    It is judged as it stood at equal distances; between the last of these without a finding and the first with it, the step is
    found by halving.

    Args:
        recording: A run folder of our recorder.
        form: The form in which it is shown.
        since: First step at which something is wrong; what ends before does not count.
        looks: How often the recording is judged; what comes and goes between two of them is not seen.
    """
    from ckaudit.audit.engine import triage_reads
    from ckaudit.audit.load_run import open_run

    with TemporaryDirectory(prefix="run-") as temporary:
        run = open_run(as_form(recording, form, Path(temporary) / "run"), reads=triage_reads())
    last = run.last_step or 0

    @cache
    def codes_at(step: int) -> frozenset[str]:
        return _codes(run.until(step), since)

    first, before = dict[str, int](), max(0, since - 1)
    for step in sorted({round(look * last / looks) for look in range(1, looks + 1)}):
        if step <= before:
            continue
        for code in codes_at(step) - first.keys():
            first[code] = _first(range(before + 1, step + 1), lambda at, code=code: code in codes_at(at))  # type: ignore[misc]
        before = step
    return first


def _first(steps: range, is_reported: Callable[[int], bool]) -> int:
    """Return the first of steps from which on something is reported, by bisection; it is reported at the last of them."""
    return steps[bisect_left(steps, x=True, key=is_reported)]


def _codes(run: Run, since: int) -> frozenset[str]:
    from ckaudit.audit.engine import clauses_of, judge_run
    from ckaudit.policy.acceptance import OPEN

    return frozenset(
        finding.code
        for finding in judge_run(run, clauses_of(run, OPEN)[0], OPEN).findings
        if finding.severity in COUNTING and not finding.code.startswith(CLOCK) and ends(finding) >= since
    )


def losses(recording: Path) -> tuple[Steps, Floats]:
    """Return the steps of a recording that have a training loss, and the losses, infinite where they are no number."""
    lines = (json.loads(line) for line in (recording / SCALARS_NAME).read_text(encoding="utf-8").splitlines())
    by_step = {line["step"]: line["train_loss_raw"] for line in lines if "train_loss_raw" in line}
    values = [float(value) for value in by_step.values()]
    return np.array([*by_step], dtype=np.int64), np.where(np.isfinite(values), values, np.inf)


def leaves_at(
    steps: Steps,
    well: Floats,
    ill_steps: Steps,
    ill: Floats,
    *,
    onset: int = 1,
    share_of_fall: float = 0.05,
    deviations: float = 3.0,
    window: float = 0.05,
) -> int | None:
    """Return the step at which the loss of an ill training leaves its healthy twin's for good; None: it never does.

    The difference of the two, step by step, has the batches of both in common. It is smoothed by a running median, and has left
    where that stands higher than the limit at every later step: the same limit that decides whether a fault has an effect.

    Args:
        steps: Steps of the twin, shape (N,).
        well: Its losses.
        ill_steps: Steps of the ill training, which may have ended early: after that it has left.
        ill: Its losses; infinite where they are no number.
        onset: First step at which the fault acts; from there on the noise of the difference is taken.
        share_of_fall: Of what the twin's loss falls: less than that is no harm.
        deviations: Of the median's noise: less than that may be chance.
        window: Of all steps: how many the running median is of, and how many the level of the first and last losses.
    """
    by_step = dict(zip(ill_steps.tolist(), ill.tolist(), strict=True))
    end = max(by_step, default=0)
    common = np.array([step in by_step or step > end for step in steps.tolist()], dtype=bool)
    steps, well = steps[common], well[common]
    if len(steps) < 3:
        return None
    difference = np.array([by_step.get(step, np.inf) for step in steps.tolist()]) - well
    width = max(1, round(window * len(steps)) // 2 * 2 + 1)
    edge = np.pad(difference, width // 2, mode="edge")
    smooth = np.array([median(edge[at : at + width].tolist()) for at in range(len(steps))])
    changed = difference[(steps >= onset) & np.isfinite(difference)]
    noise = (
        difference_noise(changed) * (MEDIAN_STANDARD_ERROR_FACTOR / width**0.5 if width > 1 else 1.0)
        if len(changed) >= 3
        else 0.0
    )
    part = max(1, round(2 * window * len(steps)))
    fall = abs(median(well[:part].tolist()) - median(well[-part:].tolist()))
    back = np.flatnonzero(~(smooth > max(share_of_fall * fall, deviations * noise)))
    first = back[-1] + 1 if len(back) else 0
    return int(steps[first]) if first < len(steps) else None


class LeadRow(Struct, frozen=True, kw_only=True):
    """A line of the table of foresight.

    Attributes:
        name: What it is of: a form, a fault, or a code.
        warned: Of the draws whose loss leaves its twin's, those with a true warning at any step.
        ahead: Those with one before the loss has left.
        steps: Median of the steps by which the first comes before the loss has left, below 0 where it comes after, of the draws
            that are told; None: none is.
        share: The same as a share of the steps from the fault to there.
        alarms: Healthy twins of which anything, of a code that very code, is told at any step.
    """

    name: str
    warned: Share
    ahead: Share
    steps: float | None
    share: float | None
    alarms: Share


def lead_rows(seen: Sequence[Foresight]) -> tuple[list[LeadRow], list[LeadRow], list[LeadRow]]:
    """Add up foresight by form, and of our recorder by fault and by code: the code that is ahead most often comes first."""
    ours = [draw for draw in seen if draw.form == "recorder"]
    codes = {code for draw in ours if draw.left is not None for code in draw.warnings}
    by_code = [_row(code, ours, lambda first_steps, code=code: first_steps.get(code)) for code in codes]  # type: ignore[misc]
    return (
        [_row(form, [draw for draw in seen if draw.form == form]) for form in dict.fromkeys(draw.form for draw in seen)],
        [_row(fault, [draw for draw in ours if draw.fault == fault]) for fault in sorted({draw.fault for draw in ours})],
        sorted(by_code, key=lambda row: (-row.ahead.hits, -(row.steps or 0), row.name)),
    )


def _earliest(first_steps: Mapping[str, int]) -> int | None:
    return min(first_steps.values(), default=None)


def _row(name: str, seen: Iterable[Foresight], first: Callable[[Mapping[str, int]], int | None] = _earliest) -> LeadRow:
    seen = list(seen)
    left = [(draw, draw.left, first(draw.warnings)) for draw in seen if draw.left is not None]
    leads = [(step - at, step - draw.onset) for draw, step, at in left if at is not None]
    twins = [draw for draw in seen if draw.is_healthy]
    shares = [lead / since for lead, since in leads if since > 0]
    return LeadRow(
        name=name,
        warned=share(len(leads), len(left)),
        ahead=share(sum(lead > 0 for lead, _ in leads), len(left)),
        steps=median([lead for lead, _ in leads]) if leads else None,
        share=median(shares) if shares else None,
        alarms=share(sum(first(draw.alarms) is not None for draw in twins), len(twins)),
    )
