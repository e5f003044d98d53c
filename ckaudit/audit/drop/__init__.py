"""Why a benchmark fell: evaluation, data, behaviour and architecture examined in strict order (SR-1 to SR-4)."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ckaudit.audit.coverage.applicability import why_not_applicable
from ckaudit.audit.drop.gates import ARTIFACTS, DATA_CORE, INTERNAL_CORE, data_evidence, evaluation_evidence, internal_evidence
from ckaudit.audit.drop.guide import GUIDE, GuideRow, gate_description
from ckaudit.audit.drop.result import Advice, Drop, Evidence, Fall, Gate, Outcome
from ckaudit.audit.drop.shift import value_with_unit
from ckaudit.audit.load_run import open_run
from ckaudit.audit.measure import notes_on_files
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.score_names import LESS_IS_BETTER
from ckaudit.errors import UsageError
from ckaudit.metrics import metrics
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.run.medians import median
from ckaudit.run.read import Progress
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Steps

__all__ = ["Drop", "benchmark_drop", "benchmark_drop_of"]

ORDER = ("changed", "steady", "remark", "too_few", "not_recorded", "not_applicable")

SINCE_HINT = "name the step from which it is worse: --since STEP"


def benchmark_drop(
    path: Path,
    *,
    since: int | None = None,
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    criteria: AcceptanceCriteria = OPEN,
    progress: Progress | None = None,
) -> Drop:
    """Return why a benchmark fell in a run, gate by gate.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        since: First step at which it is worse; None: that of the largest fall of a recorded score.
        import_options: Facts that the log of another program lacks, such as which column holds the loss.
        criteria: The policy and baseline to apply.
        progress: Called with the number of files done and their total.

    Raises:
        UnreadableError: If there is no run.
        UsageError: If the step of the fall is unknown.
    """
    reads = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    run = open_run(path, reads=reads, import_options=import_options, progress=progress)
    return benchmark_drop_of(run, since=since, criteria=criteria)


@ignoring_float_errors
def benchmark_drop_of(run: Run, *, since: int | None = None, criteria: AcceptanceCriteria = OPEN) -> Drop:
    """Return why a benchmark fell in a run in memory."""
    fall = largest_score_fall(run) if since is None else fall_since(run, since)
    notes = (*notes_on_files(run), *run.notes)
    if fall is None:
        verdict = "No recorded benchmark score falls by more than its noise; for one that was not recorded: --since STEP"
        return Drop(
            subject=run.name,
            verdict=verdict,
            answer=None,
            provisional=False,
            fall=None,
            notes=notes,
            step=run.last_step,
            files=run.files,
        )
    gates = _gates(run, fall, criteria)
    answer = next((gate for gate in gates if gate.outcome in ("failed", "advice")), None)
    return Drop(
        subject=run.name,
        verdict=_verdict(gates, answer),
        answer=answer.row if answer else None,
        provisional=answer.provisional if answer else False,
        fall=fall,
        gates=gates,
        guide=tuple(_advice(run, row) for row in GUIDE),
        notes=notes,
        step=run.last_step,
        files=run.files,
    )


def _gates(run: Run, fall: Fall, criteria: AcceptanceCriteria) -> tuple[Gate, ...]:
    """Return the four gates in order; a gate that could not be judged makes later ones provisional."""
    hashes, data, internal = (
        list(evaluation_evidence(run, fall)),
        list(data_evidence(run, fall, criteria)),
        list(internal_evidence(run, fall, criteria)),
    )
    gates = [
        _gate("SR-1", hashes, {ARTIFACTS}, every=True),
        _gate("SR-2", data, set(DATA_CORE)),
        _gate("SR-3", internal, set(INTERNAL_CORE)),
    ]
    gates.append(_last(gates))
    open_yet = [any(gate.outcome == "not_judged" for gate in gates[:place]) for place in range(len(gates))]
    return tuple(replace(gate, provisional=provisional) for gate, provisional in zip(gates, open_yet, strict=True))


def _gate(row: str, evidence: list[Evidence], core: set[str], *, every: bool = False) -> Gate:
    """Return one gate with its outcome.

    Args:
        row: Row of the gate.
        evidence: Its evidence.
        core: Numbers of which one has to be judged for the gate to pass.
        every: Whether all evidence on these numbers has to be judged.
    """
    about = gate_description(row)
    evidence = sorted(evidence, key=lambda item: (ORDER.index(item.said), item.metric not in core))
    changed = [item for item in evidence if item.said == "changed"]
    of_core = [item for item in evidence if item.metric in core]
    judged = [evidence for evidence in of_core if evidence.said in ("changed", "steady")]
    enough = bool(judged) and (not every or len(judged) == len(of_core))
    outcome: Outcome = "failed" if changed else "passed" if enough else "not_judged"
    return Gate(
        row=row,
        question=about.question,
        outcome=outcome,
        provisional=False,
        sentence=_gate_answer(outcome, evidence, core),
        do=about.do if changed else (),
        evidence=tuple(evidence),
    )


def _gate_answer(outcome: Outcome, evidence: list[Evidence], core: set[str]) -> str:
    """Return the answer of a gate in words."""
    if outcome == "failed":
        changed = [item for item in evidence if item.said == "changed"]
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        return f"No: {with_metric_name(changed[0])}{more}"
    compared = _names(item for item in evidence if item.said == "steady")
    lacking = _names(item for item in evidence if item.said in ("not_recorded", "too_few"))
    if outcome == "passed":
        return f"Yes, as far as recorded: {', '.join(compared)}" + (f"; not compared: {', '.join(lacking)}" if lacking else "")
    wanted = [name for name in lacking if name in core] or sorted(core)
    also = f"; {', '.join(compared)} alone does not settle it" if compared else ""
    return f"Not judged: record {' or '.join(wanted)} on both sides of the fall first{also}"


def with_metric_name(evidence: Evidence) -> str:
    """Return one piece of evidence with the name of its number."""
    label = f"/{evidence.label}" if evidence.label and evidence.label not in evidence.sentence else ""
    return f"{evidence.metric}{label}: {evidence.sentence}"


def _names(evidence: Iterable[Evidence]) -> list[str]:
    return list(dict.fromkeys(item.metric for item in evidence))


def _last(earlier: list[Gate]) -> Gate:
    """Return gate 4, which is reached if no earlier gate failed, and is firm if all earlier ones passed."""
    about = gate_description("SR-4")
    failed = next((gate for gate in earlier if gate.outcome == "failed"), None)
    missing = [gate.row for gate in earlier if gate.outcome == "not_judged"]
    outcome: Outcome = "not_reached" if failed or len(missing) == len(earlier) else "advice"
    if failed:
        sentence = f"Not reached: {failed.row} comes first"
    elif missing:
        sentence = f"No number tells; and {' and '.join(missing)} could not be judged, so that it may be asked too early"
    else:
        sentence = "No number tells: evaluation, data and behaviour are as they were, so that an experiment has to"
    do = about.do if outcome == "advice" else ()
    return Gate(row="SR-4", question=about.question, outcome=outcome, provisional=False, sentence=sentence, do=do)


def _verdict(gates: tuple[Gate, ...], answer: Gate | None) -> str:
    """Return the answer in one sentence."""
    missing = [gate.row for gate in gates if gate.outcome == "not_judged"]
    if answer is None:
        return f"Nobody can tell from this record: {', '.join(missing)} could not be judged"
    before = " and ".join(missing[: sum(gate.outcome == "not_judged" for gate in gates[: gates.index(answer)])])
    if answer.outcome == "advice" and before:
        return (
            f"Nothing that was recorded changed, but {before} could not be judged: record that before the architecture is doubted"
        )
    if answer.outcome == "advice":
        return "As far as recorded, evaluation, data and behaviour are as they were: the architecture is left"
    changed = next(evidence for evidence in answer.evidence if evidence.said == "changed")
    text = f"{answer.row} {TITLES[answer.row]}: {with_metric_name(changed)}"
    return f"Provisionally {text}; {before} could not be judged and comes first" if answer.provisional else text


TITLES = {"SR-1": "the evaluation changed", "SR-2": "the data drifted", "SR-3": "the model drifted"}


def _advice(run: Run, row: GuideRow) -> Advice:
    """Return a row of the guide with what this run recorded about it."""
    foreign = why_not_applicable(run, row.only_with)
    return Advice(
        row=row.row,
        title=row.title,
        when=row.when,
        text=row.text,
        test=row.test,
        facts=row.facts,
        here=() if foreign else tuple(_here(run, row)),
        not_applicable=foreign,
    )


def _here(run: Run, row: GuideRow) -> Iterable[str]:
    """Yield the last values that describe the run, including its sequence length if a row is about length."""
    length = run.manifest.sequence_length if run.manifest else None
    if row.row in ("ARC-1", "ME-4") and isinstance(length, int):
        yield f"sequences of {length:,} tokens"
    for name in row.looks_at:
        series = metrics()[name](run).recorded_rows()
        last = series.values[-1][series.finite[-1]].tolist() if series else []
        if last:
            low, high = min(last), max(last)
            ends = (
                value_with_unit(high, series.unit)
                if low == high
                else f"{value_with_unit(low, '1')} to {value_with_unit(high, series.unit)}"
            )
            yield f"{name} {ends} at step {series.steps[-1]}"


# The time of the fall: the largest fall of a recorded score beyond its noise.
def largest_score_fall(run: Run, *, noise: float = 7.0, min_fall_share: float = 0.01) -> Fall | None:
    """Return the largest fall of any recorded score; None if none fell.

    A fall goes from the best score so far to the first that is lower by more than noise explains. Benchmarks have different
    units, so falls are compared as shares of the score from which they start.

    Args:
        run: The run.
        noise: Standard deviations of a score's own noise that a fall must exceed; the best and the worst of 100 scores of pure
            normal noise are about 5 apart.
        min_fall_share: Smallest fall as a share of the score, for any noise.

    Raises:
        UsageError: If no score is recorded twice.
    """
    scores = microbench_score(run).only(lambda name: not LESS_IS_BETTER.search(name))
    if scores.points < 2:
        reason = "only one evaluation logged a microbench_score" if scores else "microbench_score is not recorded"
        raise UsageError(f"{reason}, so that no fall can be found in it", hint=SINCE_HINT)
    falls: list[tuple[float, Fall]] = []
    for column, label in enumerate(scores.labels):
        known = scores.finite_in(column)
        falls += _falls(label, scores.steps[known], scores.values[known, column], noise, min_fall_share)
    if not falls:
        return None
    falls.sort(key=lambda pair: -pair[0])
    first = falls[0][1]
    others = tuple(
        dict.fromkeys(fall.benchmark for _, fall in falls[1:] if fall.before < first.after and fall.after > first.before)
    )
    return replace(first, others=tuple(name for name in others if name != first.benchmark))


def fall_since(run: Run, since: int) -> Fall:
    """Return the fall that a user saw at `since`; the recorded step before it is the last good one.

    Raises:
        UsageError: If nothing is recorded on one of the two sides.
    """
    every = [run.checkpoint_steps, *(series.steps for series in run.scalars.values())]
    steps = np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)
    earlier, later = steps[steps < since], steps[steps >= since]
    if not len(earlier) or not len(later):
        side, steps_there = ("before", later) if len(later) else ("from", earlier)
        ends = f"It has steps {steps_there[0]} to {steps_there[-1]}." if len(steps_there) else "It is empty."
        raise UsageError(f"--since {since}: the record has no step {side} it, so that nothing can be compared", hint=ends)
    return Fall(benchmark="", before=int(earlier[-1]), after=since)


def _falls(label: str, steps: Steps, scores: Floats, noise: float, min_fall_share: float) -> Iterator[tuple[float, Fall]]:
    """Yield the largest fall of one benchmark, with its depth as a share of the score from which it starts."""
    if len(scores) < 2:
        return
    best = np.maximum.accumulate(scores)
    depth = best - scores
    limit = np.maximum(noise * _noise(scores), min_fall_share * np.abs(best))
    beyond = np.flatnonzero(depth > limit)
    if not len(beyond):
        return
    deepest = int(beyond[np.argmax((depth / np.maximum(np.abs(best), 1e-12))[beyond])])
    top = int(np.flatnonzero(scores[: deepest + 1] == best[deepest])[-1])
    start = int(next(row for row in beyond if row > top))
    back = np.flatnonzero(scores[start:] >= scores[top])
    yield (
        float(depth[deepest] / max(abs(best[deepest]), 1e-12)),
        Fall(
            benchmark=label,
            before=int(steps[top]),
            after=int(steps[start]),
            high=float(scores[top]),
            low=float(scores[deepest]),
            limit=float(limit[start]),
            is_back=int(steps[start + back[0]]) if len(back) else None,
        ),
    )


def _noise(scores: Floats) -> float:
    """Return the standard deviation of noise around a smooth curve, (N,): second differences have sqrt(6) times as much."""
    second = np.diff(scores, n=2)
    return MAD_TO_SIGMA * median(np.abs(second - median(second))) / math.sqrt(6) if len(second) > 1 else 0.0
