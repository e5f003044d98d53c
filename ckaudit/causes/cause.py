"""What a cause is: a pure function from findings and series to evidence for and against one hypothesis."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import isnan
from typing import Literal

from msgspec import Struct

from ckaudit.catalogue import Catalogue
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.contract.violations import ViolationKind
from ckaudit.rules.rule import Input, Rule, rules
from ckaudit.wording import first_names

Sign = Rule | ViolationKind  # of an illness, or of a broken file


class Findings(Struct, frozen=True):
    """The findings of one run that are more than a note, by rule."""

    all: tuple[Finding, ...]

    def of(self, *rules: Sign) -> list[Finding]:
        """Return the findings of some rules, in order of time."""
        codes = {rule.code for rule in rules}
        return sorted((finding for finding in self.all if finding.code in codes), key=_start)

    def first(self, *rules: Sign) -> Finding | None:
        """Return the earliest finding of some rules."""
        return next(iter(self.of(*rules)), None)

    def since(self, step: int) -> "Findings":
        """Return the findings that began at `step` or later; one without steps is of the whole run."""
        return Findings(tuple(finding for finding in self.all if finding.first_step is None or finding.first_step >= step))

    def before(self, step: int) -> "Findings":
        """Return the findings that began before `step`."""
        return Findings(tuple(finding for finding in self.all if _start(finding) < step))


def _start(finding: Finding) -> int:
    return finding.first_step if finding.first_step is not None else -1


def supports(weight: float, sentence: str, reference: Finding | str | None = None) -> Evidence:
    """Make a reason for the cause; `weight` is what it adds to the log odds."""
    return Evidence(sentence=sentence, weight=weight, reference=_code(reference))


def contradicts(weight: float, sentence: str, reference: Finding | str | None = None) -> Evidence:
    """Make a reason against the cause."""
    return Evidence(sentence=sentence, weight=-weight, reference=_code(reference))


def _code(reference: Finding | str | None) -> str | None:
    return reference.code if isinstance(reference, Finding) else reference


class Advice(Struct, frozen=True):
    """The first knob with the numbers of this run; it replaces the catalogue's knob."""

    sentence: str


GoodCheckpoint = Literal["before", "newest", "none"]
"""Which checkpoint is good where a cause is the likely one.

"before": the last one from before the cause began. "newest": the cause costs time, or is about a number, and does the weights no
harm. "none": a run is begun with the cause, whenever it is first seen.
"""

CauseFunction = Callable[..., Iterator[Evidence | Advice]]


class Cause(Struct, frozen=True, eq=False):
    """One catalogued cause.

    Attributes:
        name: The function's and the file's name.
        explains: Rules whose findings it can account for; without one of them it is not considered.
        follows: Rules whose findings may follow from it. They do not suggest it, but once it stands they need no other cause.
        wants: Metrics it looks at; each may be missing.
        knob: What to change first.
        inspect: Where to look.
        runbook: What to save, how to contain, how to reproduce.
        title: The docstring's first sentence.
        prior: Log odds before any evidence.
        good_checkpoint: Which checkpoint the training can go on from.
    """

    name: str
    explains: tuple[Sign, ...]
    follows: tuple[Sign, ...]
    wants: tuple[Input, ...]
    knob: str
    inspect: str
    runbook: str
    title: str
    prior: float
    function: CauseFunction
    good_checkpoint: GoodCheckpoint = "before"


_CAUSES: Catalogue[Cause] = Catalogue("cause", "ckaudit.causes", before_plugins=rules)


def cause(
    *,
    prior: float,
    explains: Sequence[Sign],
    knob: str,
    inspect: str,
    runbook: str,
    follows: Sequence[Sign] = (),
    wants: Sequence[Input] = (),
    good_checkpoint: GoodCheckpoint = "before",
) -> Callable[[CauseFunction], Cause]:
    """Enter a function into the catalogue of causes.

    The function takes the `Findings`, one positional argument per want (a Series, the Manifest for FACTS, or None), the
    keyword-only weights of its evidence. It yields evidence, and where the run gives the numbers for it an `Advice` that says
    the knob exactly. `prior` is the log odds before any evidence. `good_checkpoint` is what its runbook goes on from.
    """

    def enter(function: CauseFunction) -> Cause:
        title = (function.__doc__ or "").strip().partition("\n")[0]
        rules, later = tuple(explains), tuple(follows)
        needed, says = tuple(wants), (knob, inspect, runbook)
        entry = Cause(function.__name__, rules, later, needed, *says, title, prior, function, good_checkpoint)
        return _CAUSES.add(entry.name, entry)

    return enter


def causes() -> dict[str, Cause]:
    """Return every cause by name, sorted; those of plugins come in after our own."""
    return _CAUSES.units()


def total(evidence: Iterable[Evidence], *, most_per_source: float = 6.0) -> float:
    """Return the summed weight of evidence, in log odds.

    Each source, the finding or metric that reasons rest on, adds at most `most_per_source` either way: odds of 400 to 1 are
    the most that one observation can show. Each reason without a source counts as a source of its own. A weight of NaN adds
    nothing.
    """
    sums: dict[str | int, float] = {}
    for place, item in enumerate(evidence):
        source = place if item.reference is None else item.reference
        bounded = max(-most_per_source, min(most_per_source, item.weight)) if not isnan(item.weight) else 0.0
        sums[source] = sums.get(source, 0.0) + bounded
    return sum(max(-most_per_source, min(most_per_source, weight)) for weight in sums.values())


def places_of(findings: Iterable[Finding]) -> set[str]:
    """Return every place that findings name."""
    return {place for finding in findings for place in (finding.where, *finding.also) if place}


def first_and_others(places: Collection[str]) -> str:
    """Return the first of some places in alphabetical order, and how many others there are, for a sentence.

    >>> first_and_others(["b", "a", "c"])
    'a and 2 more'
    """
    return first_names(sorted(places), 1)
