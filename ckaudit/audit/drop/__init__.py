"""Why a benchmark fell: evaluation, data, behaviour and architecture asked in strict order (SR-1 to SR-4)."""

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from ckaudit.audit.applicability import why_not
from ckaudit.audit.drop import evaluation
from ckaudit.audit.drop.fall import fall_of, fall_since
from ckaudit.audit.drop.gates import DATA_CORE, INTERNAL_CORE, data_evidence, internal_evidence
from ckaudit.audit.drop.guide import GUIDE, Row
from ckaudit.audit.drop.procedure import asked
from ckaudit.audit.drop.result import Advice, Drop, Evidence, Fall, Gate, Outcome
from ckaudit.audit.drop.shift_detectors import amount
from ckaudit.audit.load_run import open_run
from ckaudit.audit.measure import notes_on_files
from ckaudit.contract.float_overflow import takes_any_numbers
from ckaudit.contract.import_options import NOTHING_SAID, Choice
from ckaudit.metrics import metrics
from ckaudit.policy.gate import OPEN
from ckaudit.policy.gate import Gate as Policed
from ckaudit.run.read import Progress
from ckaudit.run.run import Run

__all__ = ["Drop", "benchmark_drop", "benchmark_drop_of"]

ORDER = ("changed", "steady", "remark", "too_few", "not_recorded", "not_applicable")


def benchmark_drop(
    path: Path, *, since: int | None = None, choice: Choice = NOTHING_SAID, gate: Policed = OPEN, progress: Progress | None = None
) -> Drop:
    """Ask of a run, gate by gate, why a benchmark fell.

    Args:
        path: A run folder, a checkpoint file, or a log that an importer knows.
        since: The step from which it is worse; None: that of the largest fall of a recorded score.
        choice: What a foreign log does not say itself, such as which of its columns holds the loss.
        gate: Which policy holds.
        progress: Called with files done and files in all.

    Raises:
        UnreadableError: Where there is no run.
        UsageError: Where nobody can tell when it fell.
    """
    reads = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    run = open_run(path, reads=reads, choice=choice, progress=progress)
    return benchmark_drop_of(run, since=since, gate=gate)


@takes_any_numbers
def benchmark_drop_of(run: Run, *, since: int | None = None, gate: Policed = OPEN) -> Drop:
    """Ask the same of a run that is in memory."""
    fall = fall_of(run) if since is None else fall_since(run, since)
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
    gates = _gates(run, fall, gate)
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


def _gates(run: Run, fall: Fall, policy: Policed) -> tuple[Gate, ...]:
    """Return the four gates in order; one that could not be judged makes those behind it provisional."""
    hashes, data, internal = (
        list(evaluation.evidence(run, fall)),
        list(data_evidence(run, fall, policy)),
        list(internal_evidence(run, fall, policy)),
    )
    made = [
        _gate("SR-1", hashes, {evaluation.NAME}, every=True),
        _gate("SR-2", data, set(DATA_CORE)),
        _gate("SR-3", internal, set(INTERNAL_CORE)),
    ]
    made.append(_last(made))
    open_yet = [any(gate.outcome == "not_judged" for gate in made[:place]) for place in range(len(made))]
    return tuple(replace(gate, provisional=provisional) for gate, provisional in zip(made, open_yet, strict=True))


def _gate(row: str, found: list[Evidence], core: set[str], *, every: bool = False) -> Gate:
    """Return one gate with its outcome.

    Args:
        row: Which.
        found: What was found.
        core: Numbers of which one has to be judged, or the gate cannot pass.
        every: Whether all that was found of these has to be.
    """
    about = asked(row)
    found = sorted(found, key=lambda each: (ORDER.index(each.said), each.metric not in core))
    changed = [each for each in found if each.said == "changed"]
    mine = [each for each in found if each.metric in core]
    judged = [each for each in mine if each.said in ("changed", "steady")]
    enough = bool(judged) and (not every or len(judged) == len(mine))
    outcome: Outcome = "failed" if changed else "passed" if enough else "not_judged"
    return Gate(
        row=row,
        question=about.question,
        outcome=outcome,
        provisional=False,
        sentence=_said(outcome, found, core),
        do=about.do if changed else (),
        evidence=tuple(found),
    )


def _said(outcome: Outcome, found: list[Evidence], core: set[str]) -> str:
    """Return the answer of a gate in words."""
    if outcome == "failed":
        changed = [each for each in found if each.said == "changed"]
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        return f"No: {named(changed[0])}{more}"
    compared = _names(each for each in found if each.said == "steady")
    lacking = _names(each for each in found if each.said in ("not_recorded", "too_few"))
    if outcome == "passed":
        return f"Yes, as far as recorded: {', '.join(compared)}" + (f"; not compared: {', '.join(lacking)}" if lacking else "")
    wanted = [name for name in lacking if name in core] or sorted(core)
    also = f"; {', '.join(compared)} alone does not settle it" if compared else ""
    return f"Not judged: record {' or '.join(wanted)} on both sides of the fall first{also}"


def named(evidence: Evidence) -> str:
    """Return one piece of evidence with the name of its number."""
    label = f"/{evidence.label}" if evidence.label and evidence.label not in evidence.sentence else ""
    return f"{evidence.metric}{label}: {evidence.sentence}"


def _names(found: Iterable[Evidence]) -> list[str]:
    return list(dict.fromkeys(each.metric for each in found))


def _last(earlier: list[Gate]) -> Gate:
    """Return gate 4, which is reached where nothing before it failed, and firm where all before it passed."""
    about = asked("SR-4")
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
    text = f"{answer.row} {TITLES[answer.row]}: {named(next(each for each in answer.evidence if each.said == 'changed'))}"
    return f"Provisionally {text}; {before} could not be judged and comes first" if answer.provisional else text


TITLES = {"SR-1": "the evaluation changed", "SR-2": "the data drifted", "SR-3": "the model drifted"}


def _advice(run: Run, row: Row) -> Advice:
    """Return a row of the guide with what this run recorded of it."""
    foreign = why_not(run, row.only_with)
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


def _here(run: Run, row: Row) -> Iterable[str]:
    """Yield the last values that say where a run stands, and its sequence length where length is asked for."""
    length = run.manifest.sequence_length if run.manifest else None
    if row.row in ("ARC-1", "ME-4") and isinstance(length, int):
        yield f"sequences of {length:,} tokens"
    for name in row.looks_at:
        series = metrics()[name](run).recorded_rows()
        last = series.values[-1][series.finite[-1]].tolist() if series else []
        if last:
            low, high = min(last), max(last)
            ends = amount(high, series.unit) if low == high else f"{amount(low, '1')} to {amount(high, series.unit)}"
            yield f"{name} {ends} at step {series.steps[-1]}"
