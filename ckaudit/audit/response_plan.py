"""What to do now about the findings of one run: contain, localize, save the evidence, replay."""

import re
import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.audit.diagnose import of_record
from ckaudit.audit.playbook.levels import ACTIONS, OF_RECORDS, WITH_CAUSE
from ckaudit.audit.playbook.workflow import part_of
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding
from ckaudit.metrics.loss import val_loss
from ckaudit.metrics.probes import fixed_probe_loss
from ckaudit.rules.evaluation.benchmark_regression import benchmark_regression
from ckaudit.run.run import Run

BATCHES = ("batch_id", "batch_hash")


def response(
    run: Run,
    findings: Sequence[Finding],
    diagnoses: Sequence[Diagnosis] = (),
    *,
    around: int = 50,
    batches: int = 4,
    sure: float = 0.5,
) -> list[str]:
    """Return what to do, in the order of doing it (WF-1 to WF-4); nothing where no finding is more than a note.

    Args:
        run: What was recorded.
        findings: What the rules found.
        diagnoses: What explains it, likeliest first: the knob of a likely cause is better than any general action.
        around: Steps on either side of the first bad one whose numbers are worth saving.
        batches: How many batches before it are named.
        sure: A cause less likely than this is no ground to act on.
    """
    ill = [finding for finding in findings if finding.severity != "note"]
    if not ill:
        return []
    training = [finding for finding in ill if not of_record(finding)]
    severity = min((finding.severity for finding in training or ill), key=SEVERITIES.index)
    if not training:
        return [f"{severity}: {OF_RECORDS}", _parts(ill)]
    since = min((finding.first_step for finding in training if finding.first_step is not None), default=None)
    action = (WITH_CAUSE if diagnoses and diagnoses[0].confidence >= sure else ACTIONS)[severity]
    lines = [f"{severity}: {action}{_before(run, since)}", _parts(ill)]
    if since is not None:
        lines += [_evidence(run, since, around, batches), _replay(run, since)]
    return [*lines, *_benchmarks(run, ill)]


def from_the_start(run: Run, step: int | None, *, worth: int = 10) -> bool:
    """Tell whether what was first seen at `step` may be as old as the run: at its first checkpoint, or within `worth` steps."""
    later = run.checkpoint_steps[run.checkpoint_steps > 0]
    return step is not None and (step <= worth or step == next(iter(later.tolist()), None))


def _before(run: Run, since: int | None) -> str:
    """Return up to where the run is good, with the lowest validation loss there and what it is at the end."""
    if since is None:
        return ""
    if from_the_start(run, since):
        return "; nothing written so far is known to be good"
    text = f"; good is what was written before step {since}"
    held = val_loss(run)
    evaluated = held.recorded.any(axis=1)  # (T,)
    steps = held.steps[evaluated]
    lowest = np.where(held.finite, held.values, np.inf).min(axis=1, initial=np.inf)[evaluated]
    before, after = lowest[steps < since], lowest[steps >= since]
    if np.isfinite(before).sum() < 2:
        return text
    best = int(np.argmin(before))
    if len(after) and after[-1] < before[best]:
        return f"{text}, at the price of a validation loss that has come from {before[best]:.4g} to {after[-1]:.4g} since"
    return f"{text} (validation is lowest at step {steps[best]})"


def _parts(ill: Sequence[Finding]) -> str:
    """Return which parts of the stack are ill and since when, the first before the later (WF-2)."""
    parts: dict[str, list[Finding]] = {}
    for finding in sorted(ill, key=_start):
        parts.setdefault(part_of(finding.code), []).append(finding)
    return f"look at: {'; '.join(_part(name, found) for name, found in parts.items())}"


def _part(name: str, findings: Sequence[Finding]) -> str:
    first = next((finding.first_step for finding in findings if finding.first_step is not None), None)
    since = "" if first is None else f" since step {first}"
    return f"{name}{since} ({', '.join(dict.fromkeys(finding.code for finding in findings))})"


def _start(finding: Finding) -> int:
    return -1 if finding.first_step is None else finding.first_step


def _evidence(run: Run, since: int, around: int, batches: int) -> str:
    """Return what to save before it is gone: numbers, batches, the black box, logs (WF-1)."""
    last = since + around if run.last_step is None else min(since + around, run.last_step)
    parts = [f"the numbers of steps {max(0, since - around)} to {last}", _batches(run, since, batches)]
    event = next((event.event_step for event in run.events if since <= event.event_step <= since + around), None)
    if event is not None:
        parts.append(f"the black box (ckaudit triage {shlex.quote(run.name)} --event {event})")
    alone = run.manifest is not None and run.manifest.world_size == 1
    return f"save: {', '.join([*parts, 'and the logs of these minutes' + ('' if alone else ' from every rank')])}"


def _batches(run: Run, since: int, batches: int) -> str:
    """Return the last batches up to the first bad step, by what the run calls them; of the start, the first batch."""
    since = max(1, since)
    for name in BATCHES:
        known = [each for labels in run.words(name).values() for each in zip(labels.steps, labels.values, strict=True)]
        if last := [(step, word) for step, word in sorted(known) if step <= since][-batches:]:
            return _named(last)
    first = max(1, since - batches + 1)
    return f"the batches of steps {first} to {since}" if first < since else f"the batch of step {since}"


def _named(batches: Sequence[tuple[int, str]]) -> str:
    """Return batches with what the run calls them: from the first to the last where names count with the steps.

    >>> _named([(7, "7/0"), (8, "8/0"), (9, "9/0")]), _named([(7, "ab"), (8, "cd")])
    ('the batches of steps 7 to 9 (ids 7/0 to 9/0)', 'the batches ab at step 7, cd at step 8')
    """
    (first, id_of_first), (last, id_of_last) = batches[0], batches[-1]
    counted = [re.sub(rf"(?<!\d)0*{step}(?!\d)", "#", word, count=1) for step, word in batches]
    steps = [step for step, _ in batches]
    if "#" in counted[0] and len(set(counted)) == 1 and steps == list(range(first, last + 1)):
        if first == last:
            return f"the batch of step {first} (id {id_of_first})"
        return f"the batches of steps {first} to {last} (ids {id_of_first} to {id_of_last})"
    told = ", ".join(f"{word} at step {step}" for step, word in batches)
    return f"the batch{'' if len(batches) == 1 else 'es'} {told}"


def _replay(run: Run, since: int) -> str:
    """Return what to repeat, and the value that it must have (WF-3)."""
    probe = fixed_probe_loss(run)
    rows = [row for row, step in enumerate(probe.steps.tolist()) if step < since and probe.finite[row].any()]
    if from_the_start(run, since):
        return "replay: the first steps once more with the same seed; what comes again is in the code or the configuration"
    again = f"replay: from the last checkpoint before step {since}, with the same batches and nothing changed"
    if not rows:
        return f"{again}; a fixed batch (recorder.pin) would show that the checkpoint is the one that was saved"
    column = int(probe.finite[rows[-1]].argmax())
    value = float(probe.values[rows[-1], column])
    return f"{again}; the fixed batch must cost {value:.4g} nats/token, as at step {int(probe.steps[rows[-1]])}"


def _benchmarks(run: Run, ill: Sequence[Finding]) -> Iterator[str]:
    """Yield the way to explain a score that fell (WF-4)."""
    if any(finding.code == benchmark_regression.code for finding in ill):
        yield f"a benchmark fell: ckaudit triage {shlex.quote(run.name)} --benchmark-drop asks why, in order"
