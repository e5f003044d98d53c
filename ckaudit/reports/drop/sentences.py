"""The sentences that a screen and Markdown say alike of a benchmark's fall."""

from ckaudit.audit.drop.result import Advice, Drop, Evidence, Fall, Gate
from ckaudit.reports.words import number

WORDS = {"passed": "passed", "failed": "FAILED", "not_judged": "not judged", "advice": "advice", "not_reached": "not reached"}


def fell(fall: Fall) -> str:
    """Return what fell and when."""
    if not fall.benchmark or fall.high is None or fall.low is None:
        return f"Worse since step {fall.after}, as told; compared with what was up to step {fall.before}."
    high, low, limit = number(fall.high), number(fall.low), number(fall.limit or 0.0, digits=2)
    text = (
        f"{fall.benchmark} falls from {high} at step {fall.before} to {low}, from step {fall.after} on; noise explains {limit}."
    )
    text += f" At step {fall.is_back} it is back." if fall.is_back is not None else ""
    return text + (f" So does {', '.join(fall.others)}." if fall.others else "")


def outcome(gate: Gate) -> str:
    """Return the outcome of a gate in words."""
    return WORDS[gate.outcome] + (", provisional" if gate.provisional and gate.outcome != "not_reached" else "")


def told(gate: Gate, drop: Drop, *, verbose: bool) -> list[Evidence]:
    """Return the evidence worth reading: all that was compared up to the answer, then only what changed."""
    if verbose:
        return list(gate.evidence)
    later = drop.answer is not None and gate.row > drop.answer
    wanted = {"changed"} if later else {"changed", "steady", "remark", "too_few"}
    return [evidence for evidence in gate.evidence if evidence.said in wanted]


def missing(gate: Gate) -> dict[tuple[str, ...], list[str]]:
    """Return by the lines that record them the numbers that an open gate lacks."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for evidence in gate.evidence if gate.outcome == "not_judged" else ():
        if evidence.said in ("not_recorded", "too_few") and evidence.record:
            names = groups.setdefault(evidence.record, [])
            names += [evidence.metric] if evidence.metric not in names else []
    return groups


def guide_of(drop: Drop, *, verbose: bool) -> list[Advice]:
    """Return the rows of the guide to show: those for this run where the gate is reached, all where everything is asked for."""
    reached = drop.answer == "SR-4"
    return [advice for advice in drop.guide if verbose or (reached and not advice.not_applicable)]
