"""Sums of outcomes: shares with their intervals, overall, by group and by fault."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

from ckaudit.lab.score.verdict import ControlOutcome, FaultOutcome
from ckaudit.lab.training_spec import Split
from ckaudit.run.robust import wilson_interval

VERSION: Literal["ck.lab_score.v1"] = "ck.lab_score.v1"


# A share of trials with its confidence interval.
class Share(Struct, frozen=True, kw_only=True):
    """Hits among trials.

    Attributes:
        hits: Number of hits.
        of: Number of trials.
        share: Hits over trials; None without trials.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    hits: int
    of: int
    share: float | None = None
    low: float | None = None
    high: float | None = None


def share(hits: int, of: int) -> Share:
    """Return hits over trials with Wilson's interval of 95 %.

    It assumes independent trials; two seeds of one fault are not, so the interval is rather too narrow.

    Args:
        hits: Number of hits.
        of: Number of trials.

    >>> found = share(9, 10)
    >>> round(found.low, 3), round(found.high, 3)
    (0.596, 0.982)
    """
    if not of:
        return Share(hits=hits, of=of)
    low, high = wilson_interval(hits, of)
    return Share(hits=hits, of=of, share=hits / of, low=low, high=high)


# Sums of outcomes.
class Faults(Struct, frozen=True, kw_only=True):
    """Sums over faults, without harmless ones.

    Attributes:
        name: Name of the group or fault; "all".
        detected: Runs with a finding of the right kind.
        first_right: Runs whose first cause is the truth.
        acceptable: Runs whose first cause is the truth or an acceptable one.
        top3: Runs with the truth among the first three.
        place_right: Runs with a place in which it is named.
        false: Runs with a finding before the fault, or about something else.
        delay_steps: Median over detected runs, in steps.
        delay_checkpoints: The same in checkpoints.
        causes: First causes named instead of the truth, the most frequent first; "-": none was named.
    """

    name: str
    detected: Share
    first_right: Share
    acceptable: Share
    top3: Share
    place_right: Share
    false: Share
    delay_steps: float | None
    delay_checkpoints: float | None
    causes: tuple[str, ...]


class Harmless(Struct, frozen=True, kw_only=True):
    """Harmless faults, which deserve only a note.

    Attributes:
        noted: Runs with at least a note.
        flagged: Runs with a finding of sev0 to sev2 about the fault itself, which is too severe.
        false: Runs with a finding of sev0 to sev2 about something else.
    """

    noted: Share
    flagged: Share
    false: Share


class Healthy(Struct, frozen=True, kw_only=True):
    """Sums over healthy runs.

    Attributes:
        grave: Runs with a finding of sev0 or sev1.
        sev2: Runs with one of sev2.
        notes: Runs with a note.
        rules: Runs in which a rule found something of sev0 to sev2, by rule, the most frequent first.
    """

    grave: Share
    sev2: Share
    notes: Share
    rules: dict[str, int]


class MajorityBaseline(Struct, frozen=True, kw_only=True):
    """The score of always naming the most frequent truth."""

    cause: str
    first_right: Share


class PeerScore(Struct, frozen=True, kw_only=True):
    """The score of a tool by a measure that suits all tools: any alarm counts, at any time and of any kind.

    Attributes:
        name: The tool.
        version: Its version.
        reads: The data that it got.
        runs: Number of scored runs.
        failed: Fault runs that it fails.
        flagged: Fault runs that it fails or warns of.
        right_kind: Fault runs with an alarm for one of their symptoms, or one that means the truth or an acceptable cause.
        first_right: Fault runs whose first message means the truth.
        top3: Fault runs with the truth among its first three messages.
        healthy_failed: Healthy runs that it fails.
        healthy_flagged: Healthy runs that it fails or warns of.
        errors: Runs that it could not read.
    """

    name: str
    version: str
    reads: str
    runs: int
    failed: Share
    flagged: Share
    right_kind: Share
    first_right: Share
    top3: Share
    healthy_failed: Share
    healthy_flagged: Share
    errors: int


class Board(Struct, frozen=True, kw_only=True):
    """The score of one split.

    Attributes:
        split: Name of the split.
        all: Every fault.
        groups: Sums by group.
        faults: Sums by fault.
        harmless: Harmless faults.
        healthy: Controls and plain healthy runs.
        baseline: The score of always naming the most frequent truth.
        outcomes: Outcomes by fault and seed.
        controls: Outcomes by control and seed.
        peers: Compared tools, ours first; empty: none.
    """

    split: Split
    all: Faults
    groups: list[Faults]
    faults: list[Faults]
    harmless: Harmless
    healthy: Healthy
    baseline: MajorityBaseline | None
    outcomes: list[FaultOutcome]
    controls: list[ControlOutcome]
    peers: list[PeerScore] = []


class Score(Struct, frozen=True, kw_only=True):
    """The output of `ckaudit lab score`.

    Attributes:
        schema_version: Version of the contract.
        tool: Name and version of the auditor.
        bare: Whether the auditor saw only the log that other tools get.
        only: Scored names; empty: all.
        boards: One for each split.
        missing: Trainings without a usable recording, as name.seed.
        older: Recordings of an older loop or recorder, and what has changed.
        broken: Runs that broke the audit, and how.
    """

    schema_version: Literal["ck.lab_score.v1"] = VERSION
    tool: str
    bare: bool
    only: str
    boards: list[Board]
    missing: dict[str, str]
    older: dict[str, str]
    broken: dict[str, str]


def board(split: Split, outcomes: Sequence[FaultOutcome], controls: Sequence[ControlOutcome]) -> Board:
    """Return the sums of a split's outcomes."""
    harmful = [outcome for outcome in outcomes if not outcome.harmless]
    return Board(
        split=split,
        all=faults("all", harmful),
        groups=_by(harmful, lambda outcome: outcome.group),
        faults=_by(harmful, lambda outcome: outcome.name),
        harmless=_harmless([outcome for outcome in outcomes if outcome.harmless]),
        healthy=_healthy(controls),
        baseline=_baseline(harmful),
        outcomes=list(outcomes),
        controls=list(controls),
    )


def faults(name: str, outcomes: Sequence[FaultOutcome]) -> Faults:
    """Return the sums of outcomes under a name."""
    placed = [outcome for outcome in outcomes if outcome.place_right is not None]
    wrong = Counter(outcome.cause or "-" for outcome in outcomes if not outcome.first_right)
    return Faults(
        name=name,
        detected=_share(outcome.detected for outcome in outcomes),
        first_right=_share(outcome.first_right for outcome in outcomes),
        acceptable=_share(outcome.acceptable for outcome in outcomes),
        top3=_share(outcome.top3 for outcome in outcomes),
        place_right=_share(bool(outcome.place_right) for outcome in placed),
        false=_share(bool(outcome.false) for outcome in outcomes),
        delay_steps=_median(outcome.delay_steps for outcome in outcomes),
        delay_checkpoints=_median(outcome.delay_checkpoints for outcome in outcomes),
        causes=tuple(cause for cause, _ in sorted(wrong.items(), key=lambda item: (-item[1], item[0]))),
    )


def _by(outcomes: Sequence[FaultOutcome], key: Callable[[FaultOutcome], str]) -> list[Faults]:
    return [faults(name, [outcome for outcome in outcomes if key(outcome) == name]) for name in sorted(set(map(key, outcomes)))]


def _harmless(outcomes: Sequence[FaultOutcome]) -> Harmless:
    return Harmless(
        noted=_share(outcome.noted for outcome in outcomes),
        flagged=_share(outcome.detected for outcome in outcomes),
        false=_share(bool(outcome.false) for outcome in outcomes),
    )


def _healthy(controls: Sequence[ControlOutcome]) -> Healthy:
    rules = Counter(rule for control in controls for rule in {*control.grave, *control.sev2})
    return Healthy(
        grave=_share(bool(control.grave) for control in controls),
        sev2=_share(bool(control.sev2) for control in controls),
        notes=_share(bool(control.notes) for control in controls),
        rules=dict(sorted(rules.items(), key=lambda item: (-item[1], item[0]))),
    )


def _baseline(outcomes: Sequence[FaultOutcome]) -> MajorityBaseline | None:
    truths = Counter(outcome.truth for outcome in outcomes)
    if not truths:
        return None
    cause, hits = min(truths.items(), key=lambda item: (-item[1], item[0]))
    return MajorityBaseline(cause=cause, first_right=share(hits, len(outcomes)))


def _share(hits: Iterable[bool]) -> Share:
    outcomes = list(hits)
    return share(sum(outcomes), len(outcomes))


def _median(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
