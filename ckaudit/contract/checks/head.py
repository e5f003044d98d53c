"""The head of a checkpoint: step, session and rank compared with the file name, time, and events."""

from collections.abc import Iterator

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, PointerParts, check
from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.contract.schema.checkpoint import PLANNED
from ckaudit.contract.schema.report import Finding


@check(kinds.STEP_AND_NAME, kinds.SESSION_AND_NAME, reads=("step", "session", "rank"))
def file_name(subject: CheckInput) -> Iterator[Finding]:
    """The file name repeats step, session and rank."""
    match = CHECKPOINT_NAME.match(subject.file.replace("\\", "/").rpartition("/")[2])
    if match is None:
        return
    for key, kind in (("step", kinds.STEP_AND_NAME), ("session", kinds.SESSION_AND_NAME), ("rank", kinds.SESSION_AND_NAME)):
        inside = getattr(subject.document, key)
        if match[key] is not None and inside is not UNSET and int(match[key]) != inside:
            yield subject.find(kind, (key,), f"{int(match[key])}, as the file name says", inside)


@check(kinds.TIME_UNIT, reads=("time", "rank_facts.heartbeat"))
def time(subject: CheckInput, *, latest: float = 4102444800.0) -> Iterator[Finding]:
    """A time is in seconds, not in milliseconds.

    Args:
        subject: The checkpoint.
        latest: The year 2100 as Unix time; milliseconds passed it in 1970.
    """
    document = subject.document
    times: list[tuple[PointerParts, object]] = [(("time",), document.time)]
    if document.rank_facts is not UNSET:
        times.append((("rank_facts", "heartbeat"), document.rank_facts.heartbeat))
    for place, value in times:
        if isinstance(value, float) and value > latest:
            yield subject.find(kinds.TIME_UNIT, place, "Unix time in seconds", value)


@check(kinds.EVENT_AFTER_STEP, kinds.EVENT_WITHOUT_TRIGGER, kinds.TRIGGER_TWICE, reads=("event_step", "step", "triggers"))
def event(subject: CheckInput) -> Iterator[Finding]:
    """An event comes before the checkpoint that it triggers, and its trigger is named."""
    document = subject.document
    triggers = document.triggers or []
    if len(set(triggers)) != len(triggers):
        yield subject.find(kinds.TRIGGER_TWICE, ("triggers",), "each reason once", ", ".join(triggers))
    if document.event_step is UNSET:
        return
    if document.event_step > document.step:
        yield subject.find(kinds.EVENT_AFTER_STEP, ("event_step",), f"at most step {document.step}", document.event_step)
    if triggers and PLANNED.issuperset(triggers):
        yield subject.find(kinds.EVENT_WITHOUT_TRIGGER, ("triggers",), "the event among them", ", ".join(triggers))


@check(kinds.NEGATIVE_LOSS, reads=("loss", "probes.*.loss"))
def loss(subject: CheckInput) -> Iterator[Finding]:
    """A mean negative log likelihood of discrete targets is at least 0."""
    document = subject.document
    losses: list[tuple[PointerParts, object]] = [(("loss",), document.loss)]
    losses += [(("probes", name, "loss"), probe.loss) for name, probe in (document.probes or {}).items()]
    for place, value in losses:
        if isinstance(value, float) and value < 0:
            yield subject.find(kinds.NEGATIVE_LOSS, place, "at least 0", value)
