"""The verdict of our auditor on one run, and its comparison with the label."""

import csv
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

from ckaudit.contract.io.files import CHECKPOINT_NAME, SCALARS_PATTERN, read_bytes
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding, Report, Severity
from ckaudit.errors import CkauditError
from ckaudit.lab.labels import SYMPTOMS
from ckaudit.lab.specs import Fault
from ckaudit.questions.bad_answer_table import BAD

# The scored output of `triage` and `validate` together: the words of the lab's labels for findings of our own commands.
MISSING = ("cadence_gap", "rank_without_merged_file")

# Violations of the contract that are also named illnesses.
ALSO = {
    "tensor_dtype_changed": "dtype_changed",
    "tensor_set_changed": "parameter_count_changed",
    "tensor_shape_changed": "parameter_count_changed",
    "loss_mismatch": "contradicted_claim",
    "grad_norm_mismatch": "contradicted_claim",
    "mfu_in_percent": "impossible_value",
    "mfu_above_peak": "impossible_value",
    "rate_out_of_range": "impossible_value",
    "share_outside_0_1": "impossible_value",
    "entropy_out_of_range": "impossible_value",
    "similarity_outside": "impossible_value",
    "negative_value": "impossible_value",
    "perplexity_below_one": "impossible_value",
    "ratio_below_one": "impossible_value",
}


# Log columns of a run without our recorder, by the names of our scalars.
NAMES = {
    "train_loss_raw": "loss",
    "val_loss": "val_loss",
    "learning_rate": "lr",
    "grad_global_norm": "grad_norm",
    "step_time": "step_time",
    "tokens_per_sec": "tokens_per_sec",
    "time": "timestamp",
}  # names that all readers of logs recognise
STALL = "dataloader_stall_frac"
WORDS = ("NaN", "Infinity", "-Infinity")


def words(finding: Finding) -> tuple[str, ...]:
    """Return the words of a finding: the name of its rule or answer, or the kind of a violation."""
    if finding.name in SYMPTOMS or finding.code in BAD:
        return (finding.name,)
    if finding.name in MISSING:
        return ("missing_checkpoint",)
    also = ALSO.get(finding.name)
    return (also, "contract_violation") if also else ("contract_violation",)


class SeenFinding(Struct, frozen=True, kw_only=True):
    """One finding.

    Attributes:
        words: Names of the finding, in the words of `SYMPTOMS`.
        severity: Severity of the finding.
        first: First step; None: it is about the whole run.
        last: Last step.
        places: Places that it names.
    """

    words: tuple[str, ...]
    severity: Severity
    first: int | None = None
    last: int | None = None
    places: tuple[str, ...] = ()


class AuditVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on one run.

    Attributes:
        seen: Every finding.
        causes: The diagnoses, likeliest first.
        places: Places that the first of them names.
        checkpoints: Steps that have a checkpoint.
        error: Why the audit failed; empty: it did not.
    """

    seen: tuple[SeenFinding, ...] = ()
    causes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    checkpoints: tuple[int, ...] = ()
    error: str = ""


def judge(folder: Path) -> AuditVerdict:
    """Audit a run folder as the commands do."""
    from ckaudit.audit import triage
    from ckaudit.validate import validate

    steps = sorted(
        {int(match["step"]) for file in folder.iterdir() if (match := CHECKPOINT_NAME.match(file.name)) and match["step"]}
    )
    return _unless_broken(lambda: verdict(triage(folder), validate([folder]), checkpoints=tuple(steps)), tuple(steps))


def judge_log(folder: Path) -> AuditVerdict:
    """Audit the log that other tools get, as a table, and nothing else of the run folder."""
    from ckaudit.audit import triage

    log = folder / "log.csv"
    write_table(folder, log)
    return _unless_broken(lambda: verdict(triage(log)))


def _unless_broken(make: Callable[[], AuditVerdict], checkpoints: tuple[int, ...] = ()) -> AuditVerdict:
    try:
        return make()
    except CkauditError as error:
        return AuditVerdict(checkpoints=checkpoints, error=str(error))
    except Exception as error:  # noqa: BLE001  one run that breaks the auditor must not end the score: it is listed
        return AuditVerdict(checkpoints=checkpoints, error=f"{type(error).__name__}: {error}")


def verdict(triaged: Report, validated: Report | None = None, *, checkpoints: tuple[int, ...] = ()) -> AuditVerdict:
    """Combine the reports of one run; a finding of both counts once."""
    reported = [*(validated.findings if validated else []), *triaged.findings]
    findings = {_key(finding): finding for finding in reported}
    first = triaged.diagnoses[0] if triaged.diagnoses else None
    return AuditVerdict(
        seen=tuple(_seen(finding) for finding in findings.values()),
        causes=tuple(diagnosis.cause for diagnosis in triaged.diagnoses),
        places=_places(first) if first else (),
        checkpoints=checkpoints,
    )


def _seen(finding: Finding) -> SeenFinding:
    first = _step_of(finding)
    last = first if finding.last_step is None else finding.last_step
    return SeenFinding(words=words(finding), severity=finding.severity, first=first, last=last, places=_places(finding))


def _step_of(finding: Finding) -> int | None:
    """Return the first step of a finding, or that of the faulty checkpoint."""
    if finding.first_step is not None:
        return finding.first_step
    name = CHECKPOINT_NAME.match(finding.file.rpartition("/")[2]) if finding.file else None
    return int(name["step"]) if name and name["step"] else None


def _places(judgement: Finding | Diagnosis) -> tuple[str, ...]:
    where: Iterable[str] = (judgement.where,) if judgement.where else ()
    also = judgement.also if isinstance(judgement, Finding) else []
    return tuple(dict.fromkeys((*where, *also, *judgement.path)))


def _key(finding: Finding) -> tuple[object, ...]:
    return (words(finding), finding.severity, finding.where, finding.first_step, finding.file, finding.line, finding.pointer)


def write_table(folder: Path, path: Path) -> None:
    """Write the log that a run without our recorder would have as a table; the loader's wait is a share of the step."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, ["step", *NAMES.values(), STALL], lineterminator="\n")
        table.writeheader()
        table.writerows(log_rows(folder))


def log_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each line of the run's scalars with the names of a log; a torn line is skipped, as a reader of logs would do."""
    for file in sorted(file for file in folder.iterdir() if SCALARS_PATTERN.match(file.name)):
        for line in read_bytes(file, file.name).decode(errors="replace").splitlines():
            try:
                scalars = json.loads(line)
            except ValueError:
                continue
            values = {column: _number(scalars[name]) for name, column in NAMES.items() if scalars.get(name) is not None}
            row = {"step": scalars["step"]} | values
            yield row | ({STALL: scalars[STALL]} if isinstance(scalars.get(STALL), float) else {})


def _number(value: Any) -> Any:
    return float(value) if value in WORDS else value


# Comparison of one verdict with one label.
GRAVE, COUNTING = ("sev0", "sev1"), ("sev0", "sev1", "sev2")


class FaultOutcome(Struct, frozen=True, kw_only=True):
    """How a fault was judged under one seed.

    Attributes:
        name: The fault.
        seed: The seed.
        group: Its group.
        harmless: Whether it deserves only a note.
        truth: The cause.
        onset: First step at which it acts.
        detected: Whether a finding of sev0 to sev2 is one of its symptoms, at or after the onset.
        noted: The same, with notes.
        cause: The first cause named; None: none was named.
        first_right: Whether that is the truth.
        acceptable: Whether that is the truth or an acceptable cause.
        top3: Whether the truth is among the first three.
        place_right: Whether one of its places was named; None: it has none.
        delay_steps: Steps from when it becomes detectable to the first step of the finding; None: it was not detected.
        delay_checkpoints: Checkpoints between the two, the last included.
        false: Rules of findings of sev0 to sev2 before the onset, or that are neither its symptom nor its consequence.
        worst: The most severe finding of any kind at any time; None: there is none.
        error: Why the audit failed.
    """

    name: str
    seed: int
    group: str
    harmless: bool
    truth: str
    onset: int
    detected: bool
    noted: bool
    cause: str | None
    first_right: bool
    acceptable: bool
    top3: bool
    place_right: bool | None
    delay_steps: int | None
    delay_checkpoints: int | None
    false: tuple[str, ...]
    worst: Severity | None = None
    error: str = ""


class ControlOutcome(Struct, frozen=True, kw_only=True):
    """How a healthy training was judged under one seed: rules with findings, except the expected ones.

    Attributes:
        name: The control.
        seed: The seed.
        grave: Rules with findings of sev0 or sev1.
        sev2: Rules with findings of sev2.
        notes: Rules with notes.
        error: Why the audit failed.
    """

    name: str
    seed: int
    grave: tuple[str, ...]
    sev2: tuple[str, ...]
    notes: tuple[str, ...]
    error: str = ""


def of_fault(fault: Fault, seed: int, onset: int, verdict: AuditVerdict) -> FaultOutcome:
    """Score the verdict on a fault that acts from `onset` on."""
    counting = [seen for seen in verdict.seen if seen.severity in COUNTING]
    hits = [seen for seen in counting if _is(seen, fault.symptoms) and _not_before(seen, onset)]
    steps, checkpoints = _delay(hits, onset + fault.detectable, verdict.checkpoints)
    cause = verdict.causes[0] if verdict.causes else None
    return FaultOutcome(
        name=fault.name,
        seed=seed,
        group=fault.group,
        harmless=fault.harmless,
        truth=fault.truth,
        onset=onset,
        detected=bool(hits),
        noted=any(_is(seen, fault.symptoms) and _not_before(seen, onset) for seen in verdict.seen),
        cause=cause,
        first_right=cause == fault.truth,
        acceptable=cause in (fault.truth, *fault.acceptable),
        top3=fault.truth in verdict.causes[:3],
        place_right=_place_right(fault, onset, counting, verdict.places) if fault.place else None,
        delay_steps=steps,
        delay_checkpoints=checkpoints,
        false=_names(seen for seen in counting if _is_false(seen, fault, onset)),
        worst=min((seen.severity for seen in verdict.seen), key=SEVERITIES.index, default=None),
        error=verdict.error,
    )


def of_control(name: str, seed: int, expected: tuple[str, ...], verdict: AuditVerdict) -> ControlOutcome:
    """Score the verdict on a healthy training; `expected` rules may have findings."""
    unexpected = [seen for seen in verdict.seen if not _is(seen, expected)]
    by = {severity: [seen for seen in unexpected if seen.severity == severity] for severity in (*COUNTING, "note")}
    return ControlOutcome(
        name=name,
        seed=seed,
        grave=_names(by["sev0"] + by["sev1"]),
        sev2=_names(by["sev2"]),
        notes=_names(by["note"]),
        error=verdict.error,
    )


def _is(seen: SeenFinding, rules: tuple[str, ...]) -> bool:
    return any(word in rules for word in seen.words)


def _not_before(seen: SeenFinding, onset: int) -> bool:
    """Tell whether a finding is no earlier than the fault; one without steps is about the whole run."""
    return seen.first is None or seen.first >= onset


def _is_false(seen: SeenFinding, fault: Fault, onset: int) -> bool:
    return not _not_before(seen, onset) or not _is(seen, fault.symptoms + fault.consequences)


def _place_right(fault: Fault, onset: int, counting: list[SeenFinding], named: tuple[str, ...]) -> bool:
    """Tell whether the first diagnosis, or a finding that is not false, names one of the fault's places."""
    places = [place for seen in counting if not _is_false(seen, fault, onset) for place in seen.places]
    return any(fnmatchcase(place, pattern) for place in (*places, *named) for pattern in fault.place)


def _delay(hits: list[SeenFinding], visible: int, checkpoints: tuple[int, ...]) -> tuple[int | None, int | None]:
    """Return the delay in steps and in checkpoints; a finding about the whole run, or an early one, has none."""
    if not hits:
        return None, None
    first = min(visible if seen.first is None else seen.first for seen in hits)
    if first <= visible:
        return 0, 0
    between = bisect_right(checkpoints, first) - bisect_right(checkpoints, visible)
    return first - visible, max(0, between)


def _names(seens: Iterable[SeenFinding]) -> tuple[str, ...]:
    return tuple(sorted({seen.words[0] for seen in seens}))
