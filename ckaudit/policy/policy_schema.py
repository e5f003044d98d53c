"""Schema of a policy: the keys of `ckaudit.toml` and their types, the gate's terms, and the merging of profiles."""

from collections.abc import Collection
from datetime import date
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from ckaudit.contract.schema.report import Severity
from ckaudit.errors import UsageError

Scale = Literal["nano", "medium", "large"]

Stage = Literal["early", "steady", "late"]

Grade = Severity | Literal["off"]

PROFILES: tuple[str, ...] = ("nano", "medium", "large", "early", "steady", "late")

Unanswered = Literal["error", "fail", "pass"]

Words = Annotated[str, Meta(min_length=1)]

GATE_QUESTIONS: tuple[str, ...] = (
    "final_loss",
    "smoothed_loss",
    "loss_at_equal_tokens",
    "loss_at_equal_time",
    "steps_to_loss",
    "validation_loss",
    "validation_slices",
    "stability",
    "clip_rate",
    "speed",
    "memory",
    "health",
)

QUESTION_GROUPS: dict[str, tuple[str, ...]] = {
    "loss": ("final_loss", "smoothed_loss", "loss_at_equal_tokens"),
    "validation": ("validation_loss", "validation_slices"),
}
"""Words that stand for several questions."""

DEFAULT_QUESTIONS = ("loss", "validation", "stability", "health")


class GateTerms(Struct, frozen=True, kw_only=True):
    """Requirements for a canary.

    Attributes:
        questions: Questions that count, or groups of them.
        allow: By question, the accepted degradation: a share such as "10%", or a number in the question's unit.
        incomparable: Exit code for a canary that cannot be compared: 2 for "error", 1 for "fail", 0 for "pass".
        expect: Intended differences, by name or pattern; if given, any other difference makes the comparison void.
    """

    questions: tuple[Words, ...] = DEFAULT_QUESTIONS
    allow: dict[str, float | str] = {}
    incomparable: Unanswered = "error"
    expect: list[Words] | None = None

    def counts(self) -> list[str]:
        """Return the unique questions that count, in the order of the catalogue."""
        named = {question for word in self.questions for question in questions_named(word)}
        return [question for question in GATE_QUESTIONS if question in named]

    def allowance(self, question: str) -> float | str | None:
        """Return the accepted degradation of a question, None if none is set; its own entry takes precedence over its group's."""
        if question in self.allow:
            return self.allow[question]
        return next(
            (self.allow[word] for word, group in QUESTION_GROUPS.items() if question in group and word in self.allow), None
        )


class Ignore(Struct, frozen=True, kw_only=True):
    """Findings that the team accepts.

    Attributes:
        code: Code or name of a rule or violation, or a pattern such as "GRAD*".
        reason: The reason.
        where: Pattern of the tensor, block, head, scalar or file; all places merged into a finding must match it.
        until: The last day on which it applies; None: no end.
    """

    code: Words
    reason: Words
    where: Words = "*"
    until: date | None = None


class PolicyClauses(Struct, frozen=True, kw_only=True):
    """The settings at the top level of a policy and in each profile.

    Attributes:
        select: Codes, names or patterns of the rules that judge; None: all.
        ignore: Findings that do not count.
        thresholds: By rule, values for its thresholds.
        severities: By rule or violation, its highest severity; "off" disables it.
        fail_on: The lowest severity that fails; None: not set.
        slices: Held-out slices that must be recorded and must not regress; None: not set.
        require: "vital": a run in which a vital check could not judge does not pass; None: not set.
        tau_slices: The easy and the hard slice that tau compares; None: not set.
    """

    select: list[Words] | None = None
    ignore: list[Ignore] = []
    thresholds: dict[str, dict[str, Any]] = {}
    severities: dict[str, Grade] = {}
    fail_on: Severity | None = None
    slices: list[Words] | None = None
    require: Literal["vital"] | None = None
    tau_slices: tuple[Words, Words] | None = None

    def with_profile(self, other: "PolicyClauses") -> "PolicyClauses":
        """Return these clauses merged with those of a profile: ignores add up, everything else is replaced by key."""
        rules = self.thresholds.keys() | other.thresholds.keys()
        return PolicyClauses(
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
    """A policy as written.

    Attributes:
        file: Name of its file to show.
        base: Clauses for every run.
        profiles: Clauses for runs of one scale or stage.
        scale: Scale of the runs; None: that of each run.
        stage: Stage of the runs; None: that of each run.
        gate: Requirements for a canary; None: not set.
        columns: The logs' own names by catalogue name or its short form, as for `--map`; each applies to logs that have it.
    """

    file: str
    base: PolicyClauses
    profiles: dict[str, PolicyClauses]
    scale: Scale | None = None
    stage: Stage | None = None
    gate: GateTerms | None = None
    columns: dict[str, str] = {}

    def at(self, *words: str | None) -> tuple[PolicyClauses, list[str]]:
        """Return the clauses for a run of some scale and stage, and the profiles that apply; a later word takes precedence."""
        applied = [word for word in words if word is not None and word in self.profiles]
        clauses = self.base
        for word in applied:
            clauses = clauses.with_profile(self.profiles[word])
        return clauses, applied

    def everywhere(self) -> list[tuple[str, PolicyClauses]]:
        """Return all clauses, each with the prefix of its keys."""
        return [("", self.base), *((f"profile.{name}.", clauses) for name, clauses in self.profiles.items())]


NOTHING = PolicyClauses()


def with_open_ignores(clauses: PolicyClauses, today: date) -> tuple[PolicyClauses, list[Ignore]]:
    """Return the clauses with only today's valid ignores, and the ignores that have expired."""
    ended = [ignore for ignore in clauses.ignore if ignore.until is not None and ignore.until < today]
    return replace(clauses, ignore=[ignore for ignore in clauses.ignore if ignore not in ended]), ended


# How a policy names rules and violations: by code, by name, or by a pattern of either.
def matches_code(word: str, code: str, name: str) -> bool:
    """Tell whether a word of a policy matches the code or the name of a rule or violation.

    >>> matches_code("GRAD*", "GRAD003", "dead_parameter"), matches_code("dead_*", "GRAD003", "dead_parameter")
    (True, True)
    """
    return fnmatchcase(code, word) or fnmatchcase(name, word)


def questions_named(word: str) -> tuple[str, ...]:
    """Return the questions that a word stands for.

    >>> questions_named("validation"), questions_named("speed")
    (('validation_loss', 'validation_slices'), ('speed',))
    """
    return QUESTION_GROUPS.get(word, (word,))


def question_words() -> tuple[str, ...]:
    """Return every word that can name questions."""
    return (*QUESTION_GROUPS, *GATE_QUESTIONS)


def allowed_share(allowance: float | str) -> float | None:
    """Return an allowance as a number if it is a share of the reference, else None.

    >>> allowed_share("10%"), allowed_share("2.5 %"), allowed_share(0.05)
    (0.1, 0.025, None)
    """
    return float(allowance.rstrip("% ")) / 100 if isinstance(allowance, str) else None


def is_allowance(value: Any) -> bool:
    """Tell whether a value is a non-negative number or a percentage."""
    if isinstance(value, str):
        number, mark, rest = value.partition("%")
        return bool(mark) and not rest and number.strip().replace(".", "", 1).isdecimal()
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


# The error for an unknown word, with likely alternatives.
def refuse_unknown_word(message: str, word: str, allowed: Collection[str], *, listed: int = 12) -> UsageError:
    """Return the error for an unknown word; the hint lists the nearest known ones, or all if they are few.

    Args:
        message: The error message, with the place.
        word: The unknown word.
        allowed: The known words.
        listed: Largest number of words to list in full.
    """
    from difflib import get_close_matches

    by_key = {name.lower().replace("-", "_"): name for name in allowed}
    near = [by_key[key] for key in get_close_matches(word.lower().replace("-", "_"), by_key, n=3, cutoff=0.6)]
    if near:
        return UsageError(message, hint=f"did you mean {' or '.join(near)}?")
    if len(allowed) <= listed:
        return UsageError(message, hint=f"known are {', '.join(sorted(allowed))}" if allowed else "there is nothing to set here")
    return UsageError(message, hint="ckaudit explain lists every name")
