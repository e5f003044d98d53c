"""Outcome of each kind of violation: found, not found, or not checked because its input is missing."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from msgspec import UNSET, Struct

from ckaudit.contract import violations
from ckaudit.contract.checks import checks
from ckaudit.contract.io.files import PACKED
from ckaudit.contract.schema.report import Check, Finding, SkipReason
from ckaudit.contract.violations import ViolationKind
from ckaudit.validate.catalogue import (
    BAD_CADENCE,
    BAD_PLAN,
    BAD_TABLE,
    CADENCE_GAP,
    CLOCK_BACK,
    CONFLICT,
    CONTRADICTED_CLAIM,
    DUPLICATE_STEP,
    GRAD_NORM_MISMATCH,
    INCOMPLETE,
    LONELY_RANK,
    LOOK_ERRORS,
    LOSS_MISMATCH,
    MIXED_VERSIONS,
    NO_END,
    RANK_RANGE,
    SESSION_BACK,
    SESSION_ORDER,
    STEPS_BACK,
    TABLE_SHAPE,
    TENSOR_DTYPE,
    TENSOR_SET,
    TENSOR_SHAPE,
    UNLISTED_SESSION,
    UNLISTED_TENSOR,
    WRITE_ERRORS,
)
from ckaudit.validate.file_facts import RunFacts
from ckaudit.validate.run_checks import CANARY_STEPS, is_worth_repeating, says_derived

Skip = tuple[SkipReason, str]


class Need(Struct, frozen=True):
    """The input that a kind of violation needs.

    Attributes:
        there: Returns whether a run has it.
        reason: Reason for skipping the kind if no run has it.
        detail: The missing input, in words.
    """

    there: Callable[[RunFacts], bool]
    reason: SkipReason
    detail: str


def _two_checkpoints(run: RunFacts) -> bool:
    return len(run.merged()) > 1


def _two_layouts(run: RunFacts) -> bool:
    return sum(checkpoint.layout is not None for checkpoint in run.checkpoints) > 1


def _packed(run: RunFacts) -> bool:
    files = [*run.folder.checkpoints, *run.folder.history]
    return any(path.suffix in PACKED for path in (*(file.path for file in files), *run.folder.scalars))


_TWO = Need(_two_checkpoints, "too_few_points", "fewer than two checkpoints")
_TENSORS = Need(_two_layouts, "too_few_points", "fewer than two checkpoints with tensors")
_WHOLE = Need(lambda run: run.whole and _two_checkpoints(run), "too_few_points", "no folder with two checkpoints")
_MANIFEST = Need(lambda run: run.manifest is not None, "not_recorded", "no run.json")
_SESSIONS = Need(lambda run: bool(run.manifest and run.manifest.sessions), "not_recorded", "no sessions in run.json")
_TABLE = Need(lambda run: bool(run.manifest and run.manifest.tensors), "not_recorded", "no tensor table in run.json")
_CADENCE = Need(lambda run: bool(run.manifest and run.manifest.cadence), "not_recorded", "no cadence in run.json")
_RANKS = Need(
    lambda run: any(checkpoint.rank is not None for checkpoint in run.checkpoints), "not_applicable", "no files of single ranks"
)
_LOGS = Need(lambda run: any(log.lines for log in run.logs), "not_recorded", "no scalar log")
_PACKED = Need(_packed, "not_applicable", "no compressed files")


def _timed(run: RunFacts) -> bool:
    return sum(facts.time is not None for facts in run.merged()) > 1 or any(log.timed for log in run.logs)


def _compared(name: str) -> Callable[[RunFacts], bool]:
    return lambda run: any(key[2] == name for log in run.logs for key in log.values)


NEEDS: dict[ViolationKind, Need] = {
    violations.BAD_COMPRESSION: _PACKED,
    MIXED_VERSIONS: Need(
        lambda run: len(run.checkpoints) + len(run.versions) > 1, "too_few_points", "fewer than two checkpoints"
    ),
    DUPLICATE_STEP: _TWO,
    CADENCE_GAP: _WHOLE,
    TENSOR_SET: _TENSORS,
    TENSOR_SHAPE: _TENSORS,
    TENSOR_DTYPE: _TENSORS,
    STEPS_BACK: _LOGS,
    CLOCK_BACK: Need(_timed, "not_recorded", "no two times"),
    SESSION_BACK: Need(lambda run: bool(run.logs) or _two_checkpoints(run), "too_few_points", "no two sessions"),
    CONFLICT: _LOGS,
    BAD_CADENCE: _CADENCE,
    SESSION_ORDER: _SESSIONS,
    UNLISTED_TENSOR: _TABLE,
    TABLE_SHAPE: _TABLE,
    WRITE_ERRORS: _SESSIONS,
    LOOK_ERRORS: _SESSIONS,
    NO_END: _SESSIONS,
    LONELY_RANK: _RANKS,
    RANK_RANGE: _RANKS,
    LOSS_MISMATCH: Need(_compared("train_loss_raw"), "not_recorded", "no step with a checkpoint and a loss in the log"),
    GRAD_NORM_MISMATCH: Need(
        _compared("grad_global_norm"), "not_recorded", "no step with a checkpoint and a gradient norm in the log"
    ),
    UNLISTED_SESSION: _SESSIONS,
    BAD_TABLE: _TABLE,
    BAD_PLAN: _MANIFEST,
    INCOMPLETE: Need(is_worth_repeating, "not_applicable", f"no recorded run of more than {CANARY_STEPS:,} steps"),
    CONTRADICTED_CLAIM: Need(says_derived, "not_recorded", "no number in a log that can be recomputed"),
}


def outcomes(findings: Sequence[Finding], runs: Sequence[RunFacts]) -> list[Check]:
    """Return one check per kind of violation, in the order of codes."""
    counts = Counter(finding.code for finding in findings)
    reads: dict[ViolationKind, list[str]] = {}
    for check in checks():
        for kind in check.kinds:
            reads.setdefault(kind, []).extend(check.reads)
    recorded = set[str]().union(*(run.recorded for run in runs))
    kinds = violations.kinds_of("validate")
    return [_check(kind, counts[code], _skip(kind, runs, reads, recorded)) for code, kind in kinds.items()]


def _check(kind: ViolationKind, findings: int, skip: Skip | None) -> Check:
    reason, detail = skip if skip and not findings else (None, None)
    return Check(
        code=kind.code,
        name=kind.name,
        title=kind.title,
        severity=kind.severity,
        outcome="failed" if findings else "skipped" if skip else "passed",
        reason=reason,
        detail=detail,
        findings=findings,
    )


def _skip(
    kind: ViolationKind, runs: Sequence[RunFacts], reads: dict[ViolationKind, list[str]], recorded: set[str]
) -> Skip | None:
    need = NEEDS.get(kind)
    if need and not any(need.there(run) for run in runs):
        return need.reason, need.detail
    if kind in reads and not any(is_recorded(path, recorded) for path in reads[kind]):
        return "not_recorded", " or ".join(reads[kind][:3])
    return None


def is_recorded(path: str, recorded: set[str]) -> bool:
    """Tell whether a path such as `weights.*.histogram.counts` or `scalars.*` leads to a recorded field.

    >>> is_recorded("weights.*.histogram.counts", {"weights.*.histogram"}), is_recorded("moe.*.counts", {"loss"})
    (True, False)
    """
    parts = path.replace("[]", "").split(".")
    if any(".".join(parts[:depth]) in recorded for depth in range(1, len(parts) + 1)):
        return True
    stem = path.replace("[]", "").removesuffix(".*") + "."
    return any(name.startswith(stem) for name in recorded)


def recorded_paths(document: object, but: Collection[str]) -> set[str]:
    """Return the paths of all fields in a document, down to one level below its sections; sections in `but` are left out."""
    paths: set[str] = set()
    for name in document.__struct_fields__:  # type: ignore[attr-defined]
        value = getattr(document, name)
        if value is not UNSET and name not in but:
            if isinstance(value, dict):
                inside = [f"{name}.*.{field}" for member in value.values() for field in _fields(member)]
                paths |= {*inside, *(f"{name}.{key}" for key in value)} or {name}
            else:
                paths |= {f"{name}.{field}" for field in _fields(value)} or {name}
    return paths


def _fields(value: object) -> list[str]:
    return [field for field in getattr(value, "__struct_fields__", ()) if getattr(value, field) is not UNSET]
