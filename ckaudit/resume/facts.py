"""What a run should know of its resume checkpoints: checkpoint_ok, checkpoint_size and checkpoint_time by step."""

from collections.abc import Mapping

from msgspec import UNSET

from ckaudit.contract.schema.report import Report

LOG = "scalars-resume.jsonl"


def facts_by_step(report: Report) -> dict[int, Mapping[str, float]]:
    """Return the values that are known, by step (M61 to M63).

    Of two checkpoints of one step a broken one speaks, for somebody may resume from it; the larger size and the longer time
    count. What could not be judged is left out.
    """
    found: dict[int, dict[str, float]] = {}
    for checkpoint in report.resume_checkpoints or () if report.resume_checkpoints is not UNSET else ():
        if checkpoint.step is None:
            continue
        values = found.setdefault(checkpoint.step, {})
        if checkpoint.ok is not None:
            values["checkpoint_ok"] = min(float(checkpoint.ok), values.get("checkpoint_ok", 1.0))
        values["checkpoint_size"] = max(float(checkpoint.size), values.get("checkpoint_size", 0.0))
        if checkpoint.seconds is not None:
            values["checkpoint_time"] = max(checkpoint.seconds, values.get("checkpoint_time", 0.0))
    return {step: dict(values) for step, values in sorted(found.items())}
