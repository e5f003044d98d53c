"""Where a rule or a cause can be seen: trainings of the lab, recorded runs and logs in which an audit really found it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from ckaudit.explain.page import Section

FILE = Path(__file__).with_suffix(".toml")
TITLE = "Runs that show it"


class Shown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the file under the name of a rule or a cause; `docs/shown.py` writes it.

    Attributes:
        lab: Trainings of the lab, of whose label it is, in which the rule finds something graver than a note, or the cause
            comes first.
        noted: Those in which the rule has a note, where there are no others.
        missed: Those of whose label it is and in which it is not found, where there are no others.
        runs: Folders of recorded runs in the repository.
        logs: Logs of real trainings in the repository.
        case: The first case of its file in `tests/` that shows it.
    """

    lab: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    case: str = ""


class AllShown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file, by the names of rules and of causes."""

    rules: dict[str, Shown]
    causes: dict[str, Shown]


@cache
def shown() -> AllShown:
    """Return what is known of where rules and causes can be seen.

    Raises:
        msgspec.ValidationError: If the file has a field too many, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), AllShown)


def of_rule(name: str) -> tuple[Section, ...]:
    """Return the section on where a rule's illness can be seen; none for the rule of a plugin."""
    return _section(shown().rules.get(name), f"tests/rules/{name}.toml", "finds it", "might show it by their label, and do not")


def of_cause(name: str) -> tuple[Section, ...]:
    """Return the section on where a cause can be seen; none for the cause of a plugin."""
    return _section(shown().causes.get(name), f"tests/causes/{name}.toml", "names it first", "have it, but not named first")


def _section(found: Shown | None, cases: str, does: str, misses: str) -> tuple[Section, ...]:
    if found is None:
        return ()
    items = [_lab(found, misses)]
    items += [f"Recorded: {_listed(found.runs)}."] if found.runs else []
    items += [f"Logs of real trainings: {_listed(found.logs)}."] if found.logs else []
    if found.case and not (found.lab or found.runs or found.logs):
        items.append(f'The audit {does} in the series "{found.case}" of `{cases}`.')
    return (Section(title=TITLE, items=tuple(items)),)


def _lab(found: Shown, misses: str) -> str:
    """Return what the lab has: trainings that show it, or only a note of it, or do not, or none."""
    if found.lab:
        first, *others = found.lab
        return f"`ckaudit lab run {first} --out run/`" + (f"; also {_listed(others)}." if others else ".")
    if found.noted:
        return f"In the lab nothing more than a note: {_listed(found.noted)}."
    if found.missed:
        return f"Not shown in the lab; these {misses}: {_listed(found.missed)}."
    return "Not shown in the lab: no training there is made to have it."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
