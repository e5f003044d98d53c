"""What a policy may say: the keys of `ckaudit.toml`, their types, and how one clause is laid over another."""

from datetime import date
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from ckaudit.contract.schema.report import Severity
from ckaudit.policy.gate_settings import Terms

Scale = Literal["nano", "medium", "large"]

Stage = Literal["early", "steady", "late"]

Grade = Severity | Literal["off"]

Words = Annotated[str, Meta(min_length=1)]

PROFILES: tuple[str, ...] = ("nano", "medium", "large", "early", "steady", "late")


class Ignore(Struct, frozen=True, kw_only=True):
    """Findings that somebody has decided to live with.

    Attributes:
        code: Code or name of a rule or violation, or a pattern such as "GRAD*".
        reason: Why.
        where: Pattern of the tensor, block, head, scalar or file; the places folded into a finding must match it too.
        until: The last day on which it counts; None: no end.
    """

    code: Words
    reason: Words
    where: Words = "*"
    until: date | None = None


class Clauses(Struct, frozen=True, kw_only=True):
    """What may stand at the top of a policy and in each profile.

    Attributes:
        select: Codes, names or patterns of the rules that judge; None: all.
        ignore: Findings that do not count.
        thresholds: By rule, values for its thresholds.
        severities: By rule or violation, the gravest it may be; "off" leaves it out.
        fail_on: The least grave severity that fails; None: not said.
        slices: Held-out slices that must be recorded and must not regress; None: not said.
        require: "vital": a run in which a vital check could not judge does not pass; None: not said.
        tau_slices: The easy and the hard slice that tau compares; None: not said.
    """

    select: list[Words] | None = None
    ignore: list[Ignore] = []
    thresholds: dict[str, dict[str, Any]] = {}
    severities: dict[str, Grade] = {}
    fail_on: Severity | None = None
    slices: list[Words] | None = None
    require: Literal["vital"] | None = None
    tau_slices: tuple[Words, Words] | None = None

    def under(self, other: "Clauses") -> "Clauses":
        """Return these clauses with those of a profile laid over them: ignores add up, everything else is replaced by key."""
        rules = self.thresholds.keys() | other.thresholds.keys()
        return Clauses(
            select=self.select if other.select is None else other.select,
            ignore=[*other.ignore, *self.ignore],
            thresholds={rule: {**self.thresholds.get(rule, {}), **other.thresholds.get(rule, {})} for rule in sorted(rules)},
            severities={**self.severities, **other.severities},
            fail_on=other.fail_on or self.fail_on,
            slices=self.slices if other.slices is None else other.slices,
            require=other.require or self.require,
            tau_slices=other.tau_slices or self.tau_slices,
        )


class Policy(Struct, frozen=True, kw_only=True):
    """A policy as it was written.

    Attributes:
        file: Where it was read, as a reader would name it.
        base: What holds for every run.
        profiles: What holds for runs of one scale or stage.
        scale: Scale of the runs; None: each run says it.
        stage: Stage of the runs; None: each run says it.
        gate: What a canary is held to; None: not said.
    """

    file: str
    base: Clauses
    profiles: dict[str, Clauses]
    scale: Scale | None = None
    stage: Stage | None = None
    gate: Terms | None = None

    def at(self, *words: str | None) -> tuple[Clauses, list[str]]:
        """Return what holds for a run of some scale and stage, and the profiles that apply; a later word wins."""
        applied = [word for word in words if word is not None and word in self.profiles]
        clauses = self.base
        for word in applied:
            clauses = clauses.under(self.profiles[word])
        return clauses, applied

    def everywhere(self) -> list[tuple[str, Clauses]]:
        """Return all clauses, each with what stands before its keys."""
        return [("", self.base), *((f"profile.{name}.", clauses) for name, clauses in self.profiles.items())]


NOTHING = Clauses()


def without_end(clauses: Clauses, today: date) -> tuple[Clauses, list[Ignore]]:
    """Return the clauses whose ignores still hold today, and the ignores that have ended."""
    ended = [ignore for ignore in clauses.ignore if ignore.until is not None and ignore.until < today]
    return replace(clauses, ignore=[ignore for ignore in clauses.ignore if ignore not in ended]), ended


# How a policy names rules and violations: by code, by name, or by a pattern of either.
def means(word: str, code: str, name: str) -> bool:
    """Tell whether a word of a policy means the rule or violation of a code and a name.

    >>> means("GRAD*", "GRAD003", "dead_parameter"), means("dead_*", "GRAD003", "dead_parameter")
    (True, True)
    """
    return fnmatchcase(code, word) or fnmatchcase(name, word)
