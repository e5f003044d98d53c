"""Alarms inside a training: a watch that the training loop calls, and a handler for its logger; both can raise."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from time import monotonic, time
from typing import Any, Self

from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.audit.engine import triage
from ckaudit.contract.schema.report import SEVERITIES, Finding, Severity
from ckaudit.contract.schema.watch import WatchEvent
from ckaudit.effective_policy import PolicyNamed, criteria_of
from ckaudit.errors import CkauditError, UnhealthyRunError, UsageError
from ckaudit.importers.text.line_values import PAIR, name_of
from ckaudit.policy.acceptance import AcceptanceCriteria
from ckaudit.policy.baseline import Baseline, accepted
from ckaudit.recorder.files.manifest import load
from ckaudit.recorder.files.run_folder import wait_for_writes
from ckaudit.recorder.files.scalar_log import number
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.writer import Writer
from ckaudit.reports.view import PLAIN
from ckaudit.watch.announcer import ClockReading
from ckaudit.watch.watcher import AlarmingChange, Watcher

logger = logging.getLogger("ckaudit.watch")

LEVELS: dict[Severity, int] = {"sev0": logging.CRITICAL, "sev1": logging.ERROR, "sev2": logging.WARNING}
STEP_WORDS = frozenset({"step", "steps", "global_step", "iteration", "iter", "it", "update", "updates"})
SETTLED = 5.0  # seconds: files that our own writers renamed into the folder are complete, and need not be checked twice
URGENT_SHARE = 10  # an urgent audit takes place after a tenth of the usual number of steps
NOT_A_NUMBER = re.compile(r"(?<=\s)[-+]?(?:nan|inf)(?=\s)", re.IGNORECASE)
"""Text that `PAIR` would read as part of the next name if there were no comma after it."""
COLON = re.compile(r"(?<=\d):(?=\s)")
"""The colon after a step at the start of a line."""
OWN_OF_RECORDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


class Watch:
    """Watches a run folder from within the training that writes it.

    After every `every` steps, everything written so far is audited. New findings are logged once by `ckaudit.watch`: sev0 as
    critical, sev1 as error, sev2 as warning. It stops the training only if `raise_on` says so::

        recorder = Recorder(model, "run/", optimizer=optimizer)
        watch = ckaudit.Watch("run/", every=100, raise_on="sev0")
        for inputs, targets in loader:
            ...
            recorder.step(loss, batch=(inputs, targets))
            watch.step()                                     # raises UnhealthyRunError where the run is lost
        recorder.close()
        watch.check()                                        # the last steps too

    As a context manager it checks once more at the end, unless the training itself raised. Create it after the recorder: then it
    knows where the run resumes from, and findings of an earlier session up to that point are not repeated. An audit takes about
    50 to 100 ms in bounded memory, like those of `ckaudit watch`, which does the same from outside. If the auditor itself fails,
    that is logged and the training continues.

    Args:
        run: The folder that a `Recorder` or `Writer` writes.
        every: Number of steps between two audits.
        raise_on: The lowest severity that raises; None: none does.
        policy: A policy file; None: the one that `ckaudit watch` would use in the working folder; False: none.

    Raises:
        UsageError: If `every` is not a number of steps, the severity does not exist, or the policy is wrong.
    """

    def __init__(
        self, run: str | os.PathLike[str], /, *, every: int = 100, raise_on: Severity | None = None, policy: PolicyNamed = None
    ) -> None:
        self._raising, self._every, self._steps, self._guard = _severities(every, raise_on), every, 0, Guard()
        known = criteria_of(policy)
        with self._guard("looking for what was found before"):
            known = _known_before(Path(run), known)
        self._run = Path(run)
        never = float("inf")  # a training that calls this has not stalled
        self._watcher = Watcher(Path(run), criteria=known, stall_after=never, notes="note" in self._raising, at_every_look=True)

    def step(self) -> list[Finding]:
        """Count a step, and audit the run if an audit is due; return the new findings.

        Raises:
            UnhealthyRunError: If a new finding is at least as severe as `raise_on`.
        """
        self._steps += 1
        return self.check() if self._steps % self._every == 0 else []

    def check(self) -> list[Finding]:
        """Audit everything written so far now, and return the new findings.

        Raises:
            UnhealthyRunError: If a new finding is at least as severe as `raise_on`.
        """
        events = [event for event in self._look() if event.event in ("finding", "graver")]
        for event in events:
            logger.log(LEVELS.get(event.severity or "note", logging.INFO), "%s", _text(event))
        grave = [event for event in events if event.severity in self._raising]
        if grave:
            findings = [event.finding for event in grave if event.finding]
            raise UnhealthyRunError("\n".join(map(_text, grave)), findings=findings)
        return [event.finding for event in events if event.finding]

    def _look(self) -> list[WatchEvent]:
        events: list[WatchEvent] = []
        with self._guard("the audit"):
            wait_for_writes(self._run)
            events += self._watcher.poll(ClockReading(monotonic(), time() + SETTLED))
        return events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.check()


class LogHandler(logging.Handler):
    """Writes the numbers that a training's own logger reports to a run folder, and watches that folder.

    For a loop with a logger but no recorder::

        handler = ckaudit.LogHandler("run/", raise_on="sev0")
        logging.getLogger("train").addHandler(handler)
        log.info("step %d loss %.4f lr %.2e", step, loss, lr)                            # as it is
        log.info("evaluated", extra={"step": step, "metrics": {"val_loss": val_loss}})   # or as numbers, in full

    A message is searched for a step and for catalogue names or their usual short forms, as `ckaudit triage` does with a log file;
    so are numbers in `extra`, and in a mapping inside it. A record without a step belongs to the last step, or counts as the next
    one if no record ever names a step; a loss at step 0 is that of the first update. For each step one line is written, when the
    next step begins. Numbers before the first step, such as those of an untrained model, are left out.

    After every `every` lines, and soon after a number that is not finite or that jumps, the run is audited as by `Watch`. Other
    handlers swallow their exceptions; if `raise_on` says so, this one raises `UnhealthyRunError` out of the logging call. So it
    has to be a handler of the logger itself: behind a `QueueHandler` it would end the thread of the listener instead. All other
    errors are handled as in any handler, by `handleError`.

    Args:
        run: The run folder; created if missing.
        every: Number of lines between two audits.
        raise_on: The lowest severity that raises; None: none does.
        policy: As for `Watch`.
        level: As for any handler.
        **options: Options of `Writer`, such as start_step, and facts of `run.json`, such as planned_steps, vocabulary.

    Raises:
        UsageError: If `every` is not a number of lines, the severity does not exist, or the policy is wrong.
        TypeError: If an option is neither one of `Writer` nor a fact of `run.json`.
    """

    def __init__(
        self,
        run: str | os.PathLike[str],
        /,
        *,
        every: int = 50,
        raise_on: Severity | None = None,
        policy: PolicyNamed = None,
        level: int | str = logging.NOTSET,
        **options: Any,
    ) -> None:
        super().__init__(level)
        _severities(every, raise_on)
        criteria_of(policy)  # an invalid one is reported before anything is written
        self._writer, self._alarm = Writer(run, **options), AlarmingChange()
        self._watch = Watch(run, every=every, raise_on=raise_on, policy=policy)
        self._every, self._since, self._is_urgent = every, 0, False
        self._start = self._step = int(options.get("start_step", 0))
        self._counts_records, self._shift = True, 0
        self._row: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record, and audit the run if an audit is due.

        Raises:
            UnhealthyRunError: If a new finding is at least as severe as `raise_on`.
        """
        try:
            if str(record.name).partition(".")[0] != "ckaudit":  # a remark about the run is not one of its numbers
                self._take(dict(_numbers_of(record)))
        except Exception:  # noqa: BLE001  as in every handler
            self.handleError(record)
            return
        if self._since >= self._every or (self._is_urgent and self._since >= self._every / URGENT_SHARE):
            self._since, self._is_urgent = 0, False
            self._watch.check()

    def check(self) -> list[Finding]:
        """Audit everything logged so far now, including the current step, and return the new findings.

        Raises:
            UnhealthyRunError: If a new finding is at least as severe as `raise_on`.
        """
        self.acquire()
        try:
            self._write()
        finally:
            self.release()
        return self._watch.check()

    def close(self) -> None:
        """Write the last step and end the run; nothing is raised after that."""
        self._write()
        self._writer.close()
        super().close()

    def _take(self, numbers: dict[str, float]) -> None:
        """Add the numbers of a record to the line of their step; a new step ends the previous one."""
        named = numbers.pop("step", None)
        trains = "train_loss_raw" in numbers
        if named == self._step == self._shift == 0 and trains:
            self._shift = 1  # the step of a loss that is counted from 0 is the number of updates before it
        step = self._step if named is None or not isfinite(named) else int(named) + self._shift
        if named is None and self._counts_records and trains:
            step = self._step + 1
        if not numbers or step < self._step or step <= self._start:
            return
        self._counts_records &= named is None
        if step > self._step:
            self._write()
            self._step = step
        self._row |= numbers

    def _write(self) -> None:
        """Write the line of the step that has ended."""
        row, self._row = self._row, {}
        if row:
            self._is_urgent |= self._alarm.rings(row)
            self._since += 1
            numbers: dict[str, Any] = dict(row)
            self._writer.step(self._step, loss=numbers.pop("train_loss_raw", None), **numbers)


def _severities(every: int, raise_on: Severity | None) -> tuple[Severity, ...]:
    """Return the severities that raise, or refuse invalid arguments."""
    if every < 1:
        raise UsageError(f"an audit every {every} steps makes no sense", hint="every=100 is usual")
    if raise_on is not None and raise_on not in SEVERITIES:
        raise UsageError(f"there is no severity {raise_on!r}", hint=f"One of {', '.join(SEVERITIES)}.")
    return SEVERITIES[: SEVERITIES.index(raise_on) + 1] if raise_on else ()


def _known_before(run: Path, criteria: AcceptanceCriteria) -> AcceptanceCriteria:
    """Return criteria that also accept the findings of earlier sessions up to the step from which the current one resumes."""
    manifest = load(run)
    step = None
    if manifest is not None and manifest.sessions and not manifest.has_ended:
        resumed_from = manifest.sessions[-1].resumed_from
        if resumed_from is UNSET:  # the first step
            return criteria
        step = resumed_from
    try:
        findings = triage(run, step=step, criteria=criteria).findings
    except CkauditError:  # nothing was recorded at that time
        return criteria
    return replace(criteria, baseline=Baseline(file="", entries=[accepted(finding, "watch", None) for finding in findings]))


def _numbers_of(record: logging.LogRecord) -> Iterator[tuple[str, float]]:
    """Yield the step and the catalogue numbers of a record: from its message, then from its extra, which is exact."""
    for pair in PAIR.finditer(COLON.sub(" ", NOT_A_NUMBER.sub(r"\g<0>,", record.getMessage()))):
        if not pair[3]:  # no unit: its meaning need not be guessed
            yield from _known(pair[1], pair[2].replace(",", ""))
    for name, value in vars(record).items():
        if name not in OWN_OF_RECORDS:
            for key, entry in value.items() if isinstance(value, Mapping) else ((name, value),):
                yield from _known(str(key), entry)


def _known(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield a value under its catalogue name, if it has one and is a number."""
    word = name.lower().rpartition(" ")[2]
    known = "step" if word in STEP_WORDS else name_of(name.lower())
    if known is None or isinstance(value, bool):
        return
    try:
        scalar = number(value)
    except (TypeError, ValueError):
        return
    if scalar is not None:
        yield known, scalar


def _text(event: WatchEvent) -> str:
    from ckaudit.reports.terminal.watch import event_lines

    return event_lines(event, PLAIN)
