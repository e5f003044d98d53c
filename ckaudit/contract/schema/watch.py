"""`ck.watch.v1`: events of a watch while runs go on, one line per event; and the state of its panel at one moment."""

from typing import Annotated, Literal

from msgspec import Struct

from ckaudit.contract.schema.numbers import Number, Step, doc
from ckaudit.contract.schema.report import Finding, Severity
from ckaudit.contract.violations import kind

VERSION: Literal["ck.watch.v1"] = "ck.watch.v1"
STALLED = kind(
    "WATCH001",
    "run_stalled",
    "sev1",
    "A run that did not end writes no line any more.",
    "Look whether its process lives and what it waits for: the data, the disk, another rank; stop it before it burns the budget.",
    found_by=("watch",),
)
RANK_LOST = kind(
    "WATCH002",
    "rank_silent",
    "sev1",
    "A rank no longer writes its file beside those of the others.",
    "Look at the node of that rank: its processes, its errors, its link to the others.",
    found_by=("watch",),
)

Event = Literal["watching", "finding", "graver", "stall", "heartbeat", "resumed", "anew", "ended", "error"]


State = Literal["waiting", "running", "stalled", "ended"]


class Likely(Struct, kw_only=True, frozen=True):
    """The likeliest cause of a finding, as far as known when the finding is made."""

    cause: Annotated[str, doc("The cause in words_with_underscores.")]
    title: Annotated[str, doc("The cause as a sentence.")]
    knob: Annotated[str, doc("What to change first.")]
    confidence: Annotated[float, doc("How often causes with such a prior, such weights and such rivals were the true cause.")]


class WatchEvent(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One message of a watch."""

    schema_version: Annotated[Literal["ck.watch.v1"], doc("Version of the contract that this line follows.")]
    event: Annotated[
        Event, doc("Kind of event; graver: reported before, worse now; anew: the folder is read again; error: a rule failed.")
    ]
    time: Annotated[float, doc("When the event was reported, Unix time.", unit="s")]
    run: Annotated[str, doc("The run, as the user named it.")]
    message: Annotated[str, doc("The event as one sentence.")]
    step: Annotated[Step | None, doc("The last step recorded at that time; null: none.", unit="steps")] = None
    severity: Annotated[Severity | None, doc("Severity; null: the event is not a finding.")] = None
    finding: Annotated[Finding | None, doc("The finding, as in ck.report.v1.")] = None
    likely: Annotated[Likely | None, doc("The most likely cause of the finding; null: unknown.")] = None
    judged: Annotated[
        Literal["all", "limited", "nothing"] | None,
        doc("For a run that has ended: whether all vital checks that apply could judge it, only some, or none."),
    ] = None
    limits: Annotated[str | None, doc("The vital checks that could not judge, in words; null: all that apply could.")] = None
    to_judge_more: Annotated[str | None, doc("The one line of code that would let most of them judge; null: none is open.")] = (
        None
    )

    @property
    def tells_of_illness(self) -> bool:
        """Whether it tells of a finding that is graver than a note."""
        return self.severity not in (None, "note")


class Gauge(Struct, kw_only=True, frozen=True):
    """One number of the panel.

    Attributes:
        name: Name of the metric.
        unit: Its unit.
        value: Newest value; None: not recorded.
        step: Step of that value.
        recent: Recent values, the oldest first.
    """

    name: str
    unit: str
    value: Number | None = None
    step: int | None = None
    recent: tuple[Number | None, ...] = ()


class EarlySign(Struct, kw_only=True, frozen=True):
    """A problem that is visible before the loss shows it, and whether it is present.

    Attributes:
        name: Name of its rule, such as loss_rises.
        judged: Whether the records suffice to judge it.
        since: Its first step; None: it is not present.
    """

    name: str
    judged: bool
    since: int | None = None


class Snapshot(Struct, kw_only=True, frozen=True):
    """One run at one moment.

    Attributes:
        run: Name that the user gave the run.
        step: Last recorded step; None: none yet.
        planned: Planned last step; None: unknown.
        silence: Seconds since the last new line; None: no line yet.
        usual: Usual seconds between two lines; None: unknown yet.
        state: State: waiting, running, stalled or ended.
        vitals: Gauges of every step.
        pace: Gauges of every minute.
        alerts: Its alerts, newest last.
        early: The early signs as last judged; empty: not judged yet.
    """

    run: str
    step: int | None
    planned: int | None
    silence: float | None
    usual: float | None
    state: State
    vitals: tuple[Gauge, ...]
    pace: tuple[Gauge, ...]
    alerts: tuple[WatchEvent, ...]
    early: tuple[EarlySign, ...] = ()
