"""The base of every watch: new findings, silence of a run, and the gauges of the panel."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic, time
from typing import Any, TypedDict, Unpack

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.audit.diagnose import diagnose
from ckaudit.audit.engine import clauses_of, judge_run
from ckaudit.audit.vital_checks import Judged, judged, limits, to_judge_more, vital_checks
from ckaudit.causes import causes
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.numbers import Number, encode_float, ignoring_float_errors
from ckaudit.contract.schema.report import Accepted, Finding
from ckaudit.contract.schema.watch import STALLED, VERSION, EarlySign, Event, Gauge, Likely, Snapshot, State, WatchEvent
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.catalogue import PER_MINUTE, PER_STEP
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.policy.apply_policy import AppliedPolicy
from ckaudit.policy.baseline import Baseline, accepted, is_graver, is_near
from ckaudit.run.run import Run
from ckaudit.run.scalars import SessionLogs
from ckaudit.run.series import Series
from ckaudit.run.units import in_catalogue_units
from ckaudit.watch.silence import Silence

SLACK_STEPS = 50  # steps by which the start of a finding may move, as in a baseline

COUNTED_SCALARS = ("steps_seen", "tokens_seen")  # counted from the first step on, so the newest lines alone do not give them

RECENT_LINES = 256  # lines from which gauges are computed between two judgements

MAX_DRAWN_POINTS = 40

MAX_ALERTS = 200  # events kept for the panel

CLEAN, FOUND, NOTHING = 0, 1, 2  # exit codes of a watch

EARLY_SIGNS = ("LOSS004", "GRAD002", "ATTN002", "GRAD001")
"""Codes that come before the loss leaves its course, most frequent first: the leading codes in docs/wild.md."""


class VitalGauges:
    """The newest lines of a run, and the gauges computed from them and the last judgement."""

    def __init__(self) -> None:
        """Begin without records."""
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=RECENT_LINES)
        self._judged: dict[str, Gauge] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a log line."""
        self._rows.append(row)

    @ignoring_float_errors
    def judged(self, run: Run) -> None:
        """Compute the gauges of a whole run."""
        self._judged = {name: gauge for name in (*PER_STEP, *PER_MINUTE) if (gauge := _gauge(name, run)) is not None}

    @ignoring_float_errors
    def gauges(self, manifest: Manifest | None) -> tuple[tuple[Gauge, ...], tuple[Gauge, ...]]:
        """Return the vital signs and the pace; metrics that were not recorded have empty gauges."""
        logs = SessionLogs()
        for row in self._rows:
            logs.add(row)
        run = in_catalogue_units(Run("", manifest, scalars=logs.merged()[0].series()), {})
        return self._row(PER_STEP, run), self._row(PER_MINUTE, run)

    def _row(self, names: Sequence[str], run: Run) -> tuple[Gauge, ...]:
        return tuple(self._newest(name, run) for name in names)

    def _newest(self, name: str, run: Run) -> Gauge:
        known = self._judged.get(name)
        counted = name in COUNTED_SCALARS and not run.scalar(name)
        gauge = None if counted else _gauge(name, run)
        if gauge is None or (known is not None and (known.step or 0) > (gauge.step or 0)):
            return known or Gauge(name=name, unit=metrics()[name].unit)
        return gauge


class AnnouncedFinding(Struct):
    """A finding that was announced, and the last step at which it was seen."""

    entry: Accepted
    last: int | None


class AnnouncedFindings:
    """Announced findings, identified by code, place and start, as in a baseline."""

    def __init__(self) -> None:
        """Begin without announcements."""
        self._announced_findings: list[AnnouncedFinding] = []

    def news(self, findings: Sequence[Finding], *, in_full: int = 0) -> Iterator[tuple[Finding, bool]]:
        """Yield each finding that is new or more severe than before, and whether it was announced before.

        Args:
            findings: All current findings.
            in_full: First step from which on the history is complete. Findings that ended before were announced when they were
                new, and a thinned history is unreliable there.
        """
        places = self._places_of(findings)
        for index, finding in enumerate(findings):
            place = places.get(index)
            if place is not None and _goes_on(self._announced_findings[place], finding):
                entry = self._announced_findings[place].entry
                worse = is_graver(finding, entry)
                # Keep the announced severity: a finding that becomes milder and severe again is announced once.
                self._announced_findings[place] = _announced(finding if worse else replace(finding, severity=entry.severity))
                if worse:
                    yield finding, True
            elif finding.last_step is None or finding.last_step >= in_full:
                self._announced_findings.append(_announced(finding))
                yield finding, False

    def _places_of(self, findings: Sequence[Finding]) -> dict[int, int]:
        """Return the index of each finding's announcement; a finding that has spread is identified by its first place."""
        entries = [known.entry for known in self._announced_findings]
        places = {id(entry): place for place, entry in enumerate(entries)}
        by_index = {index: places[id(entry)] for index, entry in Baseline(file="", entries=entries).matched(findings).items()}
        left = set(range(len(entries))) - set(by_index.values())
        for index, finding in enumerate(findings):
            if index not in by_index and (spread := [place for place in sorted(left) if _is_spread(entries[place], finding)]):
                by_index[index] = spread[0]
                left.remove(spread[0])
        return by_index


class ClockReading(Struct, frozen=True):
    """The time of a poll: seconds of a monotonic clock, and Unix time."""

    now: float
    wall: float


class VitalLimits(Struct, frozen=True):
    """How completely a run could be judged.

    Attributes:
        judged: "all", "limited" or "nothing"; None: not judged yet.
        limits: The vital checks that could not judge, in words.
        to_judge_more: The one line of code that would let most of them judge.
        is_ill: Whether there is a finding more severe than a note.
    """

    judged: Judged | None = None
    limits: str = ""
    to_judge_more: str | None = None
    is_ill: bool = False

    @property
    def sentence(self) -> str:
        """The sentence about it at the end; empty if all applicable checks could judge."""
        if not self.limits:
            return ""
        return self.limits if self.is_ill else f"no illness seen, but {self.limits}"


class AnnouncerOptions(TypedDict, total=False):
    """Options for the announcements about a watched run.

    Attributes:
        criteria: Policy and baseline; without them everything is announced.
        stall_after: Seconds without a line that count as a stall; None: learned from the run.
        notes: Whether notes are announced too.
    """

    criteria: AcceptanceCriteria
    stall_after: float | None
    notes: bool


class Announcer:
    """A watched run: each new finding or state is announced once.

    Attributes:
        name: Name of the run as the user gave it.
        step: Last step recorded; None: none yet.
        silence: The pauses between its lines.
        vitals: The gauges of the panel.
        ended: Whether its last session has ended and was judged completely.
        vital: How completely it could be judged, at the last judgement.
        early: The signs that come before the loss leaves its course, at the last judgement.
        stalled: Whether the run has been silent for too long.
    """

    def __init__(self, name: str, **options: Unpack[AnnouncerOptions]) -> None:
        """Begin without records.

        Args:
            name: Name of the run as the user gave it.
            **options: Options of the announcements.
        """
        self.name, self._criteria, self._notes = name, options.get("criteria", OPEN), options.get("notes", False)
        self.silence, self.vitals = Silence(options.get("stall_after")), VitalGauges()
        self.step: int | None = None
        self.ended = self.stalled = self._has_announced = False
        self._known = AnnouncedFindings()
        self.vital = VitalLimits()
        self.early: tuple[EarlySign, ...] = ()

    def poll(self, moment: ClockReading) -> Iterator[WatchEvent]:
        """Read new records, and yield the new events."""
        raise NotImplementedError

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the run; None if there is none."""
        raise NotImplementedError

    @property
    def state(self) -> State:
        """The state of the run, in one word."""
        if self.ended:
            return "ended"
        if self.stalled:
            return "stalled"
        return "waiting" if self.step is None else "running"

    def snapshot(self, alerts: Iterable[WatchEvent]) -> Snapshot:
        """Return the current state of the run, with its events."""
        now = monotonic()
        manifest = self.manifest
        vitals, pace = self.vitals.gauges(manifest)
        planned = manifest.planned_steps if manifest is not None and manifest.planned_steps is not UNSET else None
        return Snapshot(
            run=self.name,
            step=self.step,
            planned=planned,
            silence=self.silence.lasts(now),
            usual=self.silence.usual,
            state=self.state,
            vitals=vitals,
            pace=pace,
            alerts=tuple(alerts),
            early=self.early,
        )

    def _weigh(self, run: Run, moment: ClockReading, *, in_full: int = 0) -> Iterator[WatchEvent]:
        """Judge the records read so far, which are complete from `in_full` on, and yield the new events."""
        clauses, _ = clauses_of(run, self._criteria)
        applied = judge_run(run, clauses, self._criteria)
        findings = [finding for finding in applied.findings if self._notes or finding.severity != "note"]
        news = list(self._known.news(findings, in_full=in_full))
        self.step = run.last_step if run.last_step is not None else self.step
        self.vitals.judged(run)
        self.early = _early_signs(applied)
        checks = vital_checks(run, applied.checks)
        word = judged(checks, applied.checks)
        in_words = "" if word == "all" else limits(checks) if word == "limited" else "nothing could be judged"
        self.vital = VitalLimits(
            word, in_words, to_judge_more(run, checks), any(finding.severity != "note" for finding in applied.findings)
        )
        for check in applied.checks if not self._has_announced else ():
            if check.outcome == "error":
                yield self._say("error", f"{check.code} broke: {check.detail}", moment)
        self._has_announced = True
        likely = _likely(run, applied.findings) if news else {}
        for finding, before in news:
            yield self._say("graver" if before else "finding", finding.message, moment, finding, likely.get(finding.code))

    def _silences(self, moment: ClockReading) -> Iterator[WatchEvent]:
        too_long = self.silence.is_too_long(moment.now) and not self._has_ended()
        if too_long and not self.stalled:
            lasts, limit = self.silence.lasts(moment.now) or 0.0, self.silence.limit or 0.0
            message = f"no new line for {lasts:.0f} s after step {self.step}; {limit:.0f} s are too long"
            step = {} if self.step is None else {"first_step": self.step, "last_step": self.step}
            finding = STALLED.at(None, message, where="log", value=round(lasts, 1), limit=round(limit, 1), unit="s", **step)
            yield self._say("stall", message, moment, finding)
        elif self.stalled and not too_long:
            yield self._say("resumed", "lines come again", moment)
        self.stalled = too_long

    def _end(self, moment: ClockReading) -> WatchEvent:
        """Return the event that the run has ended, with how completely it could be judged."""
        self.ended = True
        vital = self.vital
        more = f"; {vital.sentence}" if vital.sentence else ""
        ended = self._say("ended", f"the run has ended{more}", moment)
        return replace(ended, judged=vital.judged, limits=vital.limits or None, to_judge_more=vital.to_judge_more)

    def _has_ended(self) -> bool:
        return self.manifest is not None and self.manifest.has_ended

    def _say(
        self, event: Event, message: str, moment: ClockReading, finding: Finding | None = None, likely: Likely | None = None
    ) -> WatchEvent:
        return WatchEvent(
            schema_version=VERSION,
            event=event,
            time=round(moment.wall, 3),
            run=self.name,
            message=message,
            step=self.step,
            severity=finding.severity if finding else None,
            finding=finding,
            likely=likely,
        )


def watching(name: str) -> WatchEvent:
    """Return the event that a run is watched from now on."""
    return WatchEvent(
        schema_version=VERSION, event="watching", time=round(time(), 3), run=name, message="the run is watched from now on"
    )


def _early_signs(applied: AppliedPolicy) -> tuple[EarlySign, ...]:
    """Return the early signs in the order of `EARLY_SIGNS`; a rule that the policy has switched off is left out."""
    checks = {check.code: check for check in applied.checks}
    since: dict[str, int] = {}
    for finding in applied.findings:
        if finding.severity != "note":
            since[finding.code] = min(finding.first_step or 0, since.get(finding.code, finding.first_step or 0))
    return tuple(
        EarlySign(name=check.name, judged=check.outcome in ("passed", "failed"), since=since.get(code))
        for code in EARLY_SIGNS
        if (check := checks.get(code))
    )


def _likely(run: Run, findings: list[Finding]) -> dict[str, Likely]:
    """Return the likeliest cause that explains a finding, by the finding's code."""
    by_code: dict[str, Likely] = {}
    for diagnosis in diagnose(run, findings, causes().values()):
        likely = Likely(cause=diagnosis.cause, title=diagnosis.title, knob=diagnosis.knob, confidence=diagnosis.confidence)
        for code in diagnosis.explains:
            by_code.setdefault(code, likely)
    return by_code


# New findings: each is announced once, and again if it becomes more severe.
def _is_spread(entry: Accepted, finding: Finding) -> bool:
    """Tell whether a finding is an announced one with so many more places that a baseline would take it for another."""
    return entry.first_step == finding.first_step and is_near(entry, finding)


def _announced(finding: Finding) -> AnnouncedFinding:
    return AnnouncedFinding(accepted(finding, "watch", None), finding.last_step)


def _goes_on(announced: AnnouncedFinding, finding: Finding) -> bool:
    """Tell whether a finding is the announced one, and not a later one of the same kind."""
    return announced.last is None or finding.first_step is None or finding.first_step <= announced.last + SLACK_STEPS


# The gauges of the panel: vital signs per step and pace per minute, from the newest records.
def _gauge(name: str, run: Run) -> Gauge | None:
    """Return the newest value of a metric; None: it has none."""
    metric = metrics()[name]
    try:
        series = metric(run).recorded_rows()
    except Exception:  # noqa: BLE001  a metric that breaks is told by the judgement, and must not take the panel with it
        return None
    if not series:
        return None
    recent = tuple(_worst(metric, series, row) for row in range(max(0, len(series.steps) - MAX_DRAWN_POINTS), len(series.steps)))
    return Gauge(name=name, unit=metric.unit, value=recent[-1], step=int(series.steps[-1]), recent=recent)


def _worst(metric: Metric, series: Series, row: int) -> Number:
    """Return one value of a row: a non-finite one first, then the lowest or the highest as the metric requires."""
    values = series.values[row][series.recorded[row]]
    ill = values[~np.isfinite(values)]
    if len(ill):
        return encode_float(float(ill[0]))
    return encode_float(float(values.min() if metric.worst == "low" else values[0] if metric.worst == "first" else values.max()))
