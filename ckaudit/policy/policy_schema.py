"""What a policy may say: the keys of `ckaudit.toml` and their types, the terms of the gate, and how profiles are laid over."""

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
    """What a canary is held to.

    Attributes:
        questions: Questions that count, or groups of them.
        allow: By question, the loss that is accepted: a share as "10%", or a number of the question's unit.
        incomparable: What becomes of a canary that cannot be compared: "error" leaves with 2, "fail" with 1, "pass" with 0.
        expect: Differences that are meant, by name or pattern; where given, any other makes the comparison void.
    """

    questions: tuple[Words, ...] = DEFAULT_QUESTIONS
    allow: dict[str, float | str] = {}
    incomparable: Unanswered = "error"
    expect: list[Words] | None = None

    def counts(self) -> list[str]:
        """Return the questions that count, each once, in the order of the catalogue."""
        named = {question for word in self.questions for question in questions_named(word)}
        return [question for question in GATE_QUESTIONS if question in named]

    def allowance(self, question: str) -> float | str | None:
        """Return what a question may lose, None where nothing is said; its own word goes before that of its group."""
        if question in self.allow:
            return self.allow[question]
        return next(
            (self.allow[word] for word, group in QUESTION_GROUPS.items() if question in group and word in self.allow), None
        )


class Ignore(Struct, frozen=True, kw_only=True):
    """Findings that the team has decided to live with.

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


class PolicyClauses(Struct, frozen=True, kw_only=True):
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

    def with_profile(self, other: "PolicyClauses") -> "PolicyClauses":
        """Return these clauses with those of a profile laid over them: ignores add up, everything else is replaced by key."""
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
    """A policy as it was written.

    Attributes:
        file: Where it was read, as a reader would name it.
        base: What holds for every run.
        profiles: What holds for runs of one scale or stage.
        scale: Scale of the runs; None: each run says it.
        stage: Stage of the runs; None: each run says it.
        gate: What a canary is held to; None: not said.
        columns: The logs' own names by catalogue name or its short form, as `--map` names them; each counts where a log has it.
    """

    file: str
    base: PolicyClauses
    profiles: dict[str, PolicyClauses]
    scale: Scale | None = None
    stage: Stage | None = None
    gate: GateTerms | None = None
    columns: dict[str, str] = {}

    def at(self, *words: str | None) -> tuple[PolicyClauses, list[str]]:
        """Return what holds for a run of some scale and stage, and the profiles that apply; a later word wins."""
        applied = [word for word in words if word is not None and word in self.profiles]
        clauses = self.base
        for word in applied:
            clauses = clauses.with_profile(self.profiles[word])
        return clauses, applied

    def everywhere(self) -> list[tuple[str, PolicyClauses]]:
        """Return all clauses, each with what stands before its keys."""
        return [("", self.base), *((f"profile.{name}.", clauses) for name, clauses in self.profiles.items())]


NOTHING = PolicyClauses()


def with_open_ignores(clauses: PolicyClauses, today: date) -> tuple[PolicyClauses, list[Ignore]]:
    """Return the clauses whose ignores still hold today, and the ignores that have ended."""
    ended = [ignore for ignore in clauses.ignore if ignore.until is not None and ignore.until < today]
    return replace(clauses, ignore=[ignore for ignore in clauses.ignore if ignore not in ended]), ended


# How a policy names rules and violations: by code, by name, or by a pattern of either.
def matches_code(word: str, code: str, name: str) -> bool:
    """Tell whether a word of a policy means the rule or violation of a code and a name.

    >>> matches_code("GRAD*", "GRAD003", "dead_parameter"), matches_code("dead_*", "GRAD003", "dead_parameter")
    (True, True)
    """
    return fnmatchcase(code, word) or fnmatchcase(name, word)


def questions_named(word: str) -> tuple[str, ...]:
    """Return the questions that a word means.

    >>> questions_named("validation"), questions_named("speed")
    (('validation_loss', 'validation_slices'), ('speed',))
    """
    return QUESTION_GROUPS.get(word, (word,))


def question_words() -> tuple[str, ...]:
    """Return every word that may name questions."""
    return (*QUESTION_GROUPS, *GATE_QUESTIONS)


def allowed_share(allowance: float | str) -> float | None:
    """Return an allowance that is a share of the reference as a number, None for one that is not.

    >>> allowed_share("10%"), allowed_share("2.5 %"), allowed_share(0.05)
    (0.1, 0.025, None)
    """
    return float(allowance.rstrip("% ")) / 100 if isinstance(allowance, str) else None


def is_allowance(value: Any) -> bool:
    """Tell whether a value is a number from 0 on, or one in per cent."""
    if isinstance(value, str):
        number, mark, rest = value.partition("%")
        return bool(mark) and not rest and number.strip().replace(".", "", 1).isdecimal()
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


# The error for a word that is not known, with the words that may have been meant.
def refuse_unknown_word(message: str, word: str, allowed: Collection[str], *, listed: int = 12) -> UsageError:
    """Return the error for an unknown word; the hint has the nearest known ones, or all where they are few.

    Args:
        message: What is wrong, and where.
        word: What was written.
        allowed: What may be written.
        listed: So many words can still be read in a line.
    """
    from difflib import get_close_matches

    by_key = {name.lower().replace("-", "_"): name for name in allowed}
    near = [by_key[key] for key in get_close_matches(word.lower().replace("-", "_"), by_key, n=3, cutoff=0.6)]
    if near:
        return UsageError(message, hint=f"did you mean {' or '.join(near)}?")
    if len(allowed) <= listed:
        return UsageError(message, hint=f"known are {', '.join(sorted(allowed))}" if allowed else "there is nothing to set here")
    return UsageError(message, hint="ckaudit explain lists every name")
