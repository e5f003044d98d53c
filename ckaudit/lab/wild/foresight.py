"""Foresight: how many steps before the loss shows a fault it is reported; a recording is judged in its state at each step."""

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
    """The reports on one draw in one form, with their steps.

    Attributes:
        fault: The fault.
        form: The form.
        onset: First step at which the fault acts.
        left: Step at which the loss parts from its twin's for good; None: it never does.
        warnings: First step of a true warning, by code: one that the true cause or an equivalent one explains, and that the twin
            did not have by then.
        alarms: First step of any report on the twin, by code.
        is_healthy: Whether the twin learns.
    """

    fault: str
    form: Form
    onset: int
    left: int | None
    warnings: Mapping[str, int]
    alarms: Mapping[str, int]
    is_healthy: bool


def foresight_of(folder: Path, pair: PairNote, form: Form, *, is_healthy: bool) -> Foresight:
    """Judge a draw and its twin in their state at successive steps."""
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
    """Return the codes of the rules that the true cause of a fault, or an equivalent one, explains or entails."""
    from ckaudit.causes import causes

    known = [causes()[name] for name in (pair.truth, *pair.acceptable)]
    return frozenset(sign.code for cause in known for sign in (*cause.explains, *cause.follows))


def first_steps_by_code(recording: Path, form: Form, *, since: int = 0, looks: int = 40) -> dict[str, int]:
    """Return by code the first step at which a recording has a finding of sev0 to sev2, without findings on time.

    The recording is judged in its state at equidistant steps. Between the last of these without a finding and the first with it,
    the step is found by bisection.

    Args:
        recording: A run folder of our recorder.
        form: The form of the recording.
        since: First step of the fault; findings that end earlier do not count.
        looks: Number of judged steps; a finding that comes and goes between two of them is missed.
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
    """Return the first step from which on something is reported, by bisection; it must be reported at the last step."""
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
    """Return the steps with a training loss, and the losses, infinite if not finite."""
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
    """Return the step at which the loss of an ill training parts from its healthy twin's for good; None: it never does.

    Both have the same batches, so their difference is taken step by step and smoothed by a running median. The loss has parted
    when that stays above the limit at every later step. The same limit decides whether a fault has an effect.

    Args:
        steps: Steps of the twin, shape (N,).
        well: Its losses.
        ill_steps: Steps of the ill training; if it ended early, it has parted after that.
        ill: Its losses, infinite if not finite.
        onset: First step at which the fault acts; the noise of the difference is measured from there on.
        share_of_fall: Share of the fall of the twin's loss below which there is no harm.
        deviations: Multiple of the median's noise below which a difference may be chance.
        window: Share of all steps for the running median, and for the level of the first and last losses.
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
    """A row of the table of foresight.

    Attributes:
        name: Name of a form, a fault, or a code.
        warned: Draws whose loss parts from its twin's, with a true warning at any step.
        ahead: Draws with a warning before the loss has parted.
        steps: Median lead of the first warning in steps, negative if it comes after the loss has parted, over draws with a
            warning; None: there is none.
        share: The lead as a share of the steps from the fault to the parting.
        alarms: Healthy twins with any report at any step; for a code, with that code.
    """

    name: str
    warned: Share
    ahead: Share
    steps: float | None
    share: float | None
    alarms: Share


def lead_rows(seen: Sequence[Foresight]) -> tuple[list[LeadRow], list[LeadRow], list[LeadRow]]:
    """Sum up foresight by form, and for our recorder by fault and by code, the code with the most leads first."""
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
