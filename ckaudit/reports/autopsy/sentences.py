"""The sentences that a screen and Markdown say alike of an event."""

from collections.abc import Iterator, Sequence

from ckaudit.audit.autopsy import said
from ckaudit.audit.autopsy.black_box import event_triggers
from ckaudit.audit.autopsy.result import Autopsy, Departure, EventName, Moment, Return
from ckaudit.contract.schema.report import Finding
from ckaudit.reports.words import interval, plural

NAMES = {
    "loss": "loss",
    "gradient_norm": "gradient norm",
    "learning_rate": "learning rate",
    "batch": "batch seen, steps ago",
    "gradient": "gradient",
    "update": "update",
}


def title(autopsy: Autopsy) -> str:
    """Return which event, and where it was written."""
    return (
        f"event at step {autopsy.event.event_step} ({', '.join(event_triggers(autopsy.event))}), checkpoint {autopsy.event.step}"
    )


def lines_of(moment: Moment, *, verbose: bool) -> Iterator[str]:
    """Yield what left its range at one step: of many of a kind the farthest speaks for all."""
    groups: dict[tuple[str, str], list[Departure]] = {}
    for departure in moment.departures:
        groups.setdefault((departure.kind, departure.how), []).append(departure)
    for members in groups.values():
        if verbose:
            yield from map(said, members)
            continue
        more = f" (and {len(members) - 1} more)" if len(members) > 1 else ""
        yield said(members[0]) + more


def box_of(autopsy: Autopsy) -> str:
    """Return what the steps before the event are told from."""
    return "black box" if autopsy.boxed else "record without a black box"


def standing(autopsy: Autopsy) -> str:
    """Return one sentence on what was dead before the box begins and is not the story itself, or an empty string."""
    if not autopsy.standing or autopsy.onset == autopsy.steps[0]:
        return ""
    first = autopsy.standing[0]
    more = f" (and {len(autopsy.standing) - 1} more)" if len(autopsy.standing) > 1 else ""
    return f"Since the first step of the {box_of(autopsy)} {said(first)}{more}."


def earlier(autopsy: Autopsy, *, max_steps: int = 6) -> str:
    """Return one sentence on steps out of range that came to nothing, or an empty string."""
    if not autopsy.earlier:
        return ""
    steps = ", ".join(map(str, autopsy.earlier[-max_steps:]))
    return f"Out of range before, and back within a few steps: {plural(len(autopsy.earlier), 'step')}, the last {steps}."


def afterwards(autopsy: Autopsy) -> Iterator[str]:
    """Yield what became of each kind of number."""
    groups: dict[str, list[Return]] = {}
    for return_ in autopsy.returns:
        groups.setdefault(return_.kind, []).append(return_)
    for kind, members in groups.items():
        yield f"{NAMES[kind]}: {_single(members[0]) if len(members) == 1 and not members[0].name else _many(members)}"


def _single(return_: Return) -> str:
    if return_.seen_until is None:
        return "nothing is recorded after the event"
    return f"not back by step {return_.seen_until}" if return_.step is None else f"back from step {return_.step} on"


def _many(members: Sequence[Return], *, max_names: int = 3) -> str:
    """Return how many tensors are back and since when, and the names of those that are not."""
    unseen = [member.name for member in members if member.seen_until is None]
    back = [member.step for member in members if member.step is not None]
    away = [member.name for member in members if member.step is None and member.seen_until is not None]
    parts = [f"{len(back)} of {len(members)} back" + (f", from step {min(back)} to step {max(back)}" if back else "")]
    parts += [f"not back: {_some(away, max_names)}"] if away else []
    parts += [f"never recorded again: {_some(unseen, max_names)}"] if unseen else []
    return "; ".join(parts)


def _some(names: Sequence[str], max_names: int) -> str:
    return ", ".join(names[:max_names]) + (f" and {len(names) - max_names} more" if len(names) > max_names else "")


def finding(each: Finding) -> str:
    """Return a finding on one line."""
    where = f" {interval(each)}:" if interval(each) else ""
    return f"{each.severity} {each.code}{where} {each.message}"


def others(autopsy: Autopsy, *, max_names: int = 8) -> str:
    """Return the other events of the run, or an empty string."""
    events: list[EventName] = [other for other in autopsy.others if "last" not in other.triggers or len(other.triggers) > 2]
    if not events:
        return ""
    named = [f"{event.event_step} ({', '.join(event_triggers(event))})" for event in events]
    return f"Other events: {_some(named, max_names)}."
