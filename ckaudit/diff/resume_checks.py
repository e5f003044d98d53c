"""The checks of one resume, one function each: they compare values before and after it; None if a check does not apply."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Answer, Word
from ckaudit.contract.schema.manifest import Session
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.report import Finding
from ckaudit.diff.same_batches import batches
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Series
from ckaudit.wording import plural

STEPS_AFTER_RESUME = 10  # steps after a resume that are inspected


class ResumePoint(Struct, frozen=True, eq=False):
    """One resume.

    Attributes:
        run: The run, including steps before and after the resume.
        step: The last step before it.
        session: The session in run.json that resumed the run.
        branches: Values that replaced sessions logged after that step.
        before: The resumed run, if it is another folder, which may continue by itself.
        after: The run that resumed it.
        findings: Findings of the rules on resumes.
    """

    run: Run
    step: int
    session: Session | None
    branches: Mapping[int, Mapping[str, Series]]
    before: Run | None = None
    after: Run | None = None
    findings: tuple[Finding, ...] = ()

    def knowing(self, findings: Collection[Finding]) -> "ResumePoint":
        """Return the resume with the findings that begin right after it."""
        at_resume = tuple(
            finding
            for finding in findings
            if finding.first_step is not None and self.step < finding.first_step <= self.step + STEPS_AFTER_RESUME
        )
        return replace(self, findings=at_resume)

    def sides(self, name: str) -> tuple[float | None, float | None]:
        """Return the last value of a scalar before the resume and the first after it."""
        series = self.run.scalar(name)
        if not series.labels:
            return None, None
        known = series.finite[:, 0]
        before = series.values[known & (series.steps <= self.step), 0]
        after = series.values[known & (series.steps > self.step), 0]
        return (float(before[-1]) if len(before) else None), (float(after[0]) if len(after) else None)

    def finding(self, code: str) -> Finding | None:
        """Return the finding of a rule at this resume; None if there is none."""
        return next((finding for finding in self.findings if finding.code == code and finding.severity != "note"), None)

    def overlap(self, name: str) -> list[tuple[int, float, float]]:
        """Return step and both values of the steps that were logged before the resume and again after it."""
        old = [self.before.scalar(name)] if self.before else [branch[name] for branch in self.branches.values() if name in branch]
        new = self.run.scalar(name)
        if not old or not old[-1].labels or not new.labels:
            return []
        steps, old_rows, new_rows = np.intersect1d(old[-1].steps, new.steps, return_indices=True)
        pairs = zip(steps.tolist(), old[-1].values[old_rows, 0].tolist(), new.values[new_rows, 0].tolist(), strict=True)
        return [pair for pair in pairs if pair[0] > self.step]


def _answer(
    name: str, title: str, word: Word, message: str, left: float | None = None, right: float | None = None, unit: str = "1"
) -> Answer:
    return Answer(
        question=f"resume_{name}",
        title=title,
        word=word,
        message=message,
        unit=unit,
        left=None if left is None else encode_float(left),
        right=None if right is None else encode_float(right),
    )


def steps(resume: ResumePoint) -> Answer:
    """Return whether the first logged step after the resume follows the last one before it."""
    title = "Does the first step after the resume follow the last before it?"
    logged = np.unique(np.concatenate([np.empty(0, np.int64), *(scalar.steps for scalar in resume.run.scalars.values())]))
    before, after = logged[logged <= resume.step], logged[logged > resume.step]
    if not len(before) or not len(after):
        return _answer(
            "steps", title, "not_recorded", f"no line on {'both sides' if not len(logged) else 'one side'} of the resume"
        )
    last, first = int(before[-1]), int(after[0])
    spacing = int(median(np.diff(before[-20:]))) if len(before) > 1 else 1
    gap = first - last > max(spacing, 1)
    message = f"the last line before the resume is of step {last}, the first after it of {first}"
    if gap:
        message += f": lines are {plural(spacing, 'step')} apart elsewhere, so that {first - last - spacing} are missing"
    return _answer("steps", title, "different" if gap else "same", message, last, first, "steps")


def rate(resume: ResumePoint) -> Answer:
    """Return whether the learning rate continues as before."""
    title = "Does the learning rate go on?"
    before, after = resume.sides("learning_rate")
    if before is None or after is None:
        return _answer("rate", title, "not_recorded", "the learning rate is not recorded on both sides of the resume")
    apart = [
        (step, old, new) for step, old, new in resume.overlap("learning_rate") if abs(old - new) > 1e-6 * max(abs(old), abs(new))
    ]
    if apart:
        step, old, new = apart[0]
        return _answer(
            "rate", title, "worse", f"the learning rate of step {step} is {new:.4g}; before the resume it was {old:.4g}", old, new
        )
    finding = resume.finding("SCHED003")
    if finding:
        return _answer("rate", title, "worse", finding.message, before, after)
    return _answer("rate", title, "same", f"the learning rate goes on from {before:.4g} to {after:.4g}", before, after)


def optimizer(resume: ResumePoint) -> Answer:
    """Return whether the optimizer kept its state."""
    title = "Did the optimizer keep its state?"
    before, after = resume.sides("update_to_weight")
    finding = resume.finding("RESUME002")
    if finding:
        return _answer("optimizer", title, "worse", finding.message, before, after)
    sizes = f"; updates are {after:.3g} of the weights, {before:.3g} before" if before is not None and after is not None else ""
    if resume.session is not None and resume.session.optimizer_restored is True:
        return _answer("optimizer", title, "same", f"the optimizer held its state before the first update{sizes}", before, after)
    return _answer(
        "optimizer", title, "not_recorded", f"whether the optimizer held its state is not recorded{sizes}", before, after
    )


def weights(resume: ResumePoint) -> Answer:
    """Return whether the weights are those that were saved."""
    title = "Are the weights those that were saved?"
    norms = (resume.session.weight_norms or {}) if resume.session else {}
    size = resume.run.series("weights", "frobenius_norm").until(resume.step)
    shared = [label for label in size.labels if label in norms]
    if not shared or not len(size.steps):
        return _answer("weights", title, "not_recorded", "no norms of weights are recorded on both sides of the resume")
    finding = resume.finding("RESUME004")
    if finding:
        return _answer("weights", title, "worse", finding.message, _float(finding.limit), _float(finding.value))
    saved = size.only(lambda label: label in norms).values[-1]
    before, after = float(np.sqrt(np.nansum(saved**2))), float(np.sqrt(sum(float(norms[label]) ** 2 for label in shared)))
    message = f"{plural(len(shared), 'tensor')} with a norm of {after:.6g} together, {before:.6g} at step {int(size.steps[-1])}"
    return _answer("weights", title, "same", message, before, after)


def _float(value: float | str | None) -> float | None:
    return None if value is None else float(value)


def scale(resume: ResumePoint, *, growth: float = 2.0) -> Answer | None:
    """Return whether the loss scale continues; it changes by `growth` at most from step to step (GradScaler's own factor)."""
    title = "Does the loss scale go on?"
    before, after = resume.sides("loss_scale")
    if before is None and after is None:
        return None
    if before is None or after is None:
        return _answer("scale", title, "not_recorded", "the loss scale is recorded on one side of the resume only", before, after)
    lost = max(before, after) > growth * min(before, after)
    return _answer(
        "scale",
        title,
        "worse" if lost else "same",
        f"the loss scale is {after:.6g} after the resume, {before:.6g} before",
        before,
        after,
    )


def tokens(resume: ResumePoint, *, slack: float = 0.5) -> Answer:
    """Return whether the count of tokens continues; a difference of up to `slack` of an update is padding."""
    title = "Does the count of tokens go on?"
    counts = resume.run.scalar("tokens_seen")
    before, after = resume.sides("tokens_seen")
    if before is None or after is None:
        return _answer("tokens", title, "not_recorded", "tokens_seen is not recorded on both sides of the resume")
    known = counts.finite[:, 0] & (counts.steps <= resume.step)
    first = int(counts.steps[counts.finite[:, 0] & (counts.steps > resume.step)][0])
    old_steps, old = counts.steps[known][-20:], counts.values[known, 0][-20:]
    pace = median(np.diff(old) / np.diff(old_steps)) if len(old) > 1 else float("nan")
    wanted = before + pace * (first - int(old_steps[-1]))
    lost = abs(after - wanted) > slack * pace
    message = f"{after:,.0f} tokens are counted after the resume, {before:,.0f} before"
    if lost:
        message += f": {wanted:,.0f} were to come at step {first}"
    return _answer("tokens", title, "worse" if lost else "same", message, before, after, "tokens")


def data(resume: ResumePoint) -> Answer:
    """Return whether the batches after the resume are new ones."""
    title = "Does the data go on where it stopped?"
    named = batches(resume.run)
    after = [step for step in sorted(named) if step > resume.step][:STEPS_AFTER_RESUME]
    if not after or not any(step <= resume.step for step in named):
        return _answer("data", title, "not_recorded", "the batches on both sides of the resume are not recorded")
    if resume.before is not None and (answer := _data_of_before(title, resume, named, batches(resume.before))):
        return answer
    last = {named[step]: step for step in sorted(named) if step <= resume.step}
    again = [(step, last[named[step]]) for step in after if named[step] in last]
    known = {step - last_of for last_of, step in _repeats(named, resume.step)}
    lost = [pair for pair in again if pair[0] - pair[1] not in known]
    if 2 * len(lost) >= len(after):
        step, first = lost[0]
        message = (
            f"{len(lost)} of the first {len(after)} batches were seen before the resume: that of step {step} at step {first}"
        )
        return _answer("data", title, "worse", message, first, step, "steps")
    finding = resume.finding("DATA003")
    if finding:
        return _answer("data", title, "worse", finding.message)
    message = f"none of the first {len(after)} batches after the resume was seen before; whether any was skipped is not recorded"
    return _answer("data", title, "same", message)


def _data_of_before(title: str, resume: ResumePoint, named: Mapping[int, str], before: Mapping[int, str]) -> Answer | None:
    """Return whether the batches are those of the resumed run at the same steps; None if it has none of these steps."""
    shared = [step for step in sorted(named) if step > resume.step and step in before]
    apart = [step for step in shared if before[step] != named[step]]
    if apart:
        message = f"the batch of step {apart[0]} is not that of the run that was taken up"
        return _answer("data", title, "worse", message, None, apart[0])
    if shared:
        return _answer(
            "data", title, "same", f"all {len(shared)} batches after the resume are those of the run that was taken up"
        )
    return None


def _repeats(named: Mapping[int, str], until: int) -> list[tuple[int, int]]:
    """Return the steps of each batch that recurred before the resume, as in every epoch."""
    last: dict[str, int] = {}
    repeats = []
    for step in sorted(step for step in named if step <= until):
        if named[step] in last:
            repeats.append((last[named[step]], step))
        last[named[step]] = step
    return repeats


def loss(resume: ResumePoint) -> Answer:
    """Return whether the loss continues as before."""
    title = "Does the loss go on?"
    before, after = resume.sides("train_loss_raw")
    if before is None or after is None:
        return _answer("loss", title, "not_recorded", "the training loss is not recorded on both sides of the resume")
    finding = resume.finding("RESUME001")
    if finding:
        return _answer("loss", title, "worse", finding.message, before, after, "nats/token")
    again = resume.overlap("train_loss_raw")
    apart = [pair for pair in again if pair[1] != pair[2]]
    if apart:
        step, old, new = apart[0]
        message = (
            f"the loss of step {step} is {new:.6g} after the resume, {old:.6g} without it, the first of {len(apart)} that differ"
        )
        return _answer("loss", title, "different", message, old, new, "nats/token")
    more = f"; {plural(len(again), 'step')} of both are equal to the last bit" if again else ""
    return _answer("loss", title, "same", f"the loss goes on from {before:.4g} to {after:.4g}{more}", before, after, "nats/token")


RESUME_CHECKS: tuple[Callable[[ResumePoint], Answer | None], ...] = (weights, optimizer, rate, scale, data, tokens, steps, loss)
"""All checks, causes before their effects."""
