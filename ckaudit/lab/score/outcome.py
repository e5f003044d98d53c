"""One verdict held against one label."""

from bisect import bisect_right
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from ckaudit.contract.schema.report import SEVERITIES, Severity
from ckaudit.lab.score.verdict import Seen, Verdict
from ckaudit.lab.specs import Fault

GRAVE, COUNTING = ("sev0", "sev1"), ("sev0", "sev1", "sev2")


class FaultOutcome(Struct, frozen=True, kw_only=True):
    """How a fault was judged under one seed.

    Attributes:
        name: The fault.
        seed: The seed.
        group: Its group.
        harmless: Whether a note is all that it deserves.
        truth: The cause.
        onset: First step at which it acts.
        detected: Whether a finding of sev0 to sev2 is one of its symptoms, at or after the onset.
        noted: The same, with notes.
        cause: The first cause named; None: none was.
        first_right: Whether that is the truth.
        acceptable: Whether that is the truth or one of the causes that may be taken for it.
        top3: Whether the truth is among the first three.
        place_right: Whether one of its places was named; None: it has none.
        delay_steps: Steps from when it could be seen to the first step of the finding; None: it was not detected.
        delay_checkpoints: Checkpoints between the two, the last included.
        false: Rules of findings of sev0 to sev2 before the onset, or of what is neither its symptom nor its consequence.
        worst: The gravest finding of any kind at any time; None: there is none.
        error: Why the audit broke.
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
    """How a healthy training was judged under one seed: rules that found something, but for those that may.

    Attributes:
        name: The control.
        seed: The seed.
        grave: Rules with findings of sev0 or sev1.
        sev2: Rules with findings of sev2.
        notes: Rules with notes.
        error: Why the audit broke.
    """

    name: str
    seed: int
    grave: tuple[str, ...]
    sev2: tuple[str, ...]
    notes: tuple[str, ...]
    error: str = ""


def of_fault(fault: Fault, seed: int, onset: int, verdict: Verdict) -> FaultOutcome:
    """Score what was said of a fault that acts from `onset` on."""
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


def of_control(name: str, seed: int, expected: tuple[str, ...], verdict: Verdict) -> ControlOutcome:
    """Score what was said of a healthy training; `expected` rules may find something."""
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


def _is(seen: Seen, rules: tuple[str, ...]) -> bool:
    return any(word in rules for word in seen.words)


def _not_before(seen: Seen, onset: int) -> bool:
    """Tell whether a finding is no earlier than the fault; one without steps is of the whole run."""
    return seen.first is None or seen.first >= onset


def _is_false(seen: Seen, fault: Fault, onset: int) -> bool:
    return not _not_before(seen, onset) or not _is(seen, fault.symptoms + fault.consequences)


def _place_right(fault: Fault, onset: int, counting: list[Seen], named: tuple[str, ...]) -> bool:
    """Tell whether the first diagnosis, or a finding that is not false, names one of the fault's places."""
    found = [place for seen in counting if not _is_false(seen, fault, onset) for place in seen.places]
    return any(fnmatchcase(place, pattern) for place in (*found, *named) for pattern in fault.place)


def _delay(hits: list[Seen], visible: int, checkpoints: tuple[int, ...]) -> tuple[int | None, int | None]:
    """Return the delay in steps and in checkpoints; a finding of the whole run, or an early one, has none."""
    if not hits:
        return None, None
    first = min(visible if seen.first is None else seen.first for seen in hits)
    if first <= visible:
        return 0, 0
    between = bisect_right(checkpoints, first) - bisect_right(checkpoints, visible)
    return first - visible, max(0, between)


def _names(seens: Iterable[Seen]) -> tuple[str, ...]:
    return tuple(sorted({seen.words[0] for seen in seens}))
