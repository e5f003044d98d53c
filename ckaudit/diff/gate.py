"""The gate of a canary run: it is compared with known good runs, and passes, fails, or cannot be judged."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from statistics import median

from msgspec.structs import replace

from ckaudit.contract.schema.diff import BAD_WORDS, OPEN_WORDS, Answer, Comparison, Gated, Outcome, Pair, Unlike, Word
from ckaudit.diff.run_pair import is_decisive
from ckaudit.policy.policy_schema import GateTerms, Policy, allowed_share

ROUNDING = 1 + 1e-9  # 10 % more than 2.0 is 2.2, and 2.2 - 2.0 is a little more than 0.2
SURROUNDINGS = ("environment", "cadence")  # kinds of difference that need not be expected


def gated_under(comparisons: Sequence[Comparison], policy: Policy | None, *, require_vital: bool = False) -> Comparison:
    """Return the gate's result under the terms of a policy, or the default terms.

    Args:
        comparisons: As in `gated`.
        policy: The policy; None: default terms.
        require_vital: As in `gated`; a policy may require it too.
    """
    if policy is None:
        return gated(comparisons, GateTerms(), policy=None, require_vital=require_vital)
    file = policy.file if policy.gate else None
    return gated(
        comparisons, policy.gate or GateTerms(), policy=file, require_vital=require_vital or policy.base.require is not None
    )


def gated(comparisons: Sequence[Comparison], terms: GateTerms, *, policy: str | None, require_vital: bool = False) -> Comparison:
    """Return the comparisons of a canary with each good run as one, with the gate's result.

    A question fails if the canary is worse than more than half of the comparable good runs, by more than the terms allow. It is
    open if there is no answer against any of them.

    Args:
        comparisons: One per good run, each of two subjects: the good run and the canary.
        terms: The terms of the gate.
        policy: The file that contains the terms.
        require_vital: Whether a canary cannot pass if one of its vital checks could not judge.
    """
    first = comparisons[0]
    canary = first.subjects[-1]
    pairs = _outvoted([_excused(pair, terms) for comparison in comparisons for pair in comparison.pairs], terms)
    outcome, reasons = _judged(pairs, terms)
    if require_vital and outcome != "failed" and (short := _limits(pairs)):
        outcome, reasons = "incomparable", [f"every vital check is required, and of the canary {short}", *reasons]
    names = dict.fromkeys(unlike.name for pair in pairs for unlike in pair.unlike)
    gate = Gated(
        outcome=outcome,
        reasons=reasons,
        counts=terms.counts(),
        policy=policy,
        allowed={word: part for word, allowance in terms.allow.items() if (part := allowed_share(allowance)) is not None},
        expected=[name for name in names if _meant(name, terms)],
    )
    words: dict[Outcome, Word] = {"passed": "within_noise", "failed": "worse", "incomparable": "incomparable"}
    return replace(
        first,
        command="gate",
        subjects=[*(comparison.subjects[0] for comparison in comparisons), canary],
        pairs=pairs,
        gate=gate,
        word=words[outcome],
        verdict=_verdict(canary, pairs, gate),
        notes=_notes(comparisons, pairs, terms),
        files=sum(comparison.files for comparison in comparisons),
    )


def _excused(pair: Pair, terms: GateTerms) -> Pair:
    """Return a pair with the reason in each answer that does not count."""
    is_coarser = any(unlike.name == "tensors.dtype" for unlike in pair.unlike)
    minor = bool(pair.gained) and not any(is_decisive(finding, is_coarser=is_coarser) for finding in pair.gained)
    excuses = [
        "what it gained is of sev2, or of the machine or the number format, and does not fail it alone"
        if minor and answer.question == "health" and answer.word in BAD_WORDS and answer.question in terms.counts()
        else _excuse(answer, terms)
        for answer in pair.answers
    ]
    return replace(pair, answers=[replace(one, excused=why) for one, why in zip(pair.answers, excuses, strict=True)])


def _outvoted(pairs: Sequence[Pair], terms: GateTerms) -> list[Pair]:
    """Return pairs with a reason in each answer that is worse than too few good runs to count."""
    excuses = {}
    for question in terms.counts():
        answers = [answer for answer in _of(pairs, question) if answer.word not in OPEN_WORDS]
        bad = [answer for answer in answers if answer.word in BAD_WORDS and not answer.excused]
        if bad and 2 * len(bad) <= len(answers):
            excuses[question] = f"so against {len(bad)} of {len(answers)} good runs only"
    return [
        replace(
            pair,
            answers=[
                replace(answer, excused=excuses[answer.question])
                if answer.question in excuses and answer.word in BAD_WORDS and not answer.excused
                else answer
                for answer in pair.answers
            ],
        )
        for pair in pairs
    ]


def _excuse(answer: Answer, terms: GateTerms) -> str | None:
    if answer.question not in terms.counts():
        return "the gate does not ask this question"
    allowed = terms.allowance(answer.question)
    if answer.word not in BAD_WORDS or allowed is None:
        return None
    lost, part = _lost(answer, allowed), allowed_share(allowed)
    limit = float(allowed) if part is None else part
    return f"{allowed} is allowed" if lost is not None and lost <= limit * ROUNDING else None


def _lost(answer: Answer, allowed: float | str) -> float | None:
    """Return the difference of both values in the unit of the allowance; None if that is no number."""
    left, right = answer.left, answer.right
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if allowed_share(allowed) is None:
        return abs(right - left)
    return abs(right - left) / abs(left) if left else None


def _judged(pairs: Sequence[Pair], terms: GateTerms) -> tuple[Outcome, list[str]]:
    """Return the outcome with its reasons: worse results come before unknown ones."""
    worse = [sentence for question in terms.counts() if (sentence := _worse(pairs, question))]
    if worse:
        return "failed", worse
    unforeseen = _unexpected(pairs, terms)
    unanswered = [sentence for question in terms.counts() if (sentence := _unanswered(pairs, question))]
    answered = any(_is_answered(pairs, question) for question in terms.counts())
    if not unforeseen and not unanswered and answered:
        return "passed", []
    reasons = [*unforeseen, *unanswered] or ["none of the questions that count has an answer"]
    outcomes: dict[str, Outcome] = {"error": "incomparable", "fail": "failed", "pass": "passed"}
    return outcomes[terms.incomparable], reasons


def _of(pairs: Sequence[Pair], question: str) -> list[Answer]:
    return [answer for pair in pairs for answer in pair.answers if answer.question == question]


def _worse(pairs: Sequence[Pair], question: str) -> str:
    """Return why a question fails, or an empty string: worse than most of the good runs, with the median one's sentence."""
    answers = [answer for answer in _of(pairs, question) if answer.word not in OPEN_WORDS]
    bad = [answer for answer in answers if answer.word in BAD_WORDS and not answer.excused]
    if not bad:
        return ""
    middle = min(bad, key=lambda candidate: abs(_value(candidate.left) - median(_value(answer.left) for answer in bad)))
    since = next((pair.parting.step for pair in pairs if middle in pair.answers and pair.parting), None)
    of = f" (against {len(bad)} of {len(answers)} good runs)" if len(pairs) > 1 else ""
    return f"{_in_words(question)}: {middle.message}" + of + ("" if since is None else f"; the runs part at step {since}")


def _value(number: object) -> float:
    return float(number) if isinstance(number, int | float) else 0.0


def _unanswered(pairs: Sequence[Pair], question: str) -> str:
    """Return why a question has no answer against any good run, or an empty string; unrecorded questions are not asked."""
    answers = _of(pairs, question)
    asked = [answer for answer in answers if answer.word == "incomparable" or answer.left is not None]
    if not asked or any(answer.word not in OPEN_WORDS for answer in asked):
        return ""
    return f"{_in_words(question)}: {asked[0].message}"


def _is_answered(pairs: Sequence[Pair], question: str) -> bool:
    return any(answer.word not in OPEN_WORDS for answer in _of(pairs, question))


def _notes(comparisons: Sequence[Comparison], pairs: Sequence[Pair], terms: GateTerms) -> list[str]:
    """Return the notes of all comparisons, and the counting questions that no good run can answer."""
    open_ones = [_in_words(question) for question in terms.counts() if not _is_answered(pairs, question)]
    unasked = [f"these count and could not be asked: {', '.join(open_ones)}"] if open_ones else []
    return [*unasked, *dict.fromkeys(note for comparison in comparisons for note in comparison.notes)]


def _limits(pairs: Sequence[Pair]) -> str:
    """Return the vital checks of the canary that could not judge; empty: all applicable ones could."""
    return next((pair.right_limits for pair in pairs if pair.right_limits), "")


def _in_words(question: str) -> str:
    return question.replace("_", " ")


def _unexpected(pairs: Sequence[Pair], terms: GateTerms) -> list[str]:
    """Return a sentence for each difference that the terms do not expect."""
    if terms.expect is None:
        return []
    by_name = {
        unlike.name: unlike
        for pair in pairs
        for unlike in pair.unlike
        if unlike.kind not in SURROUNDINGS and not _is_of_seed(unlike, pair) and not _follows(unlike, pair, terms)
    }
    return [f"{name} was not expected to differ: {_sides(unlike)}" for name, unlike in by_name.items() if not _meant(name, terms)]


def _is_of_seed(unlike: Unlike, pair: Pair) -> bool:
    """Tell whether good runs may have a difference too: in the seed, and in the order of the data that the seed decides."""
    names = {other.name.rpartition(".")[2] for other in pair.unlike}
    return unlike.name.rpartition(".")[2] == "seed" or (unlike.name == "data_order" and "seed" in names)


def _follows(unlike: Unlike, pair: Pair, terms: GateTerms) -> bool:
    """Tell whether a difference follows from an expected one: a setting recorded twice, or a plan that settings determine."""
    if unlike.name == "planned_learning_rate":
        return any(other.name.startswith("config.") and _meant(other.name, terms) for other in pair.unlike)
    return unlike.kind == "config" and _meant(f"config.{unlike.name}", terms)


def _sides(unlike: Unlike) -> str:
    left, right = ("not recorded" if side is None else side for side in (unlike.left, unlike.right))
    return f"{left} and {right}"


def _meant(name: str, terms: GateTerms) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in terms.expect or ())


def _verdict(canary: str, pairs: Sequence[Pair], gate: Gated) -> str:
    """Return a sentence with the result of the canary and the first reason."""
    against = pairs[0].left if len(pairs) == 1 else f"{len(pairs)} good runs"
    more = f" And {len(gate.reasons) - 1} more." if len(gate.reasons) > 1 else ""
    if gate.outcome == "passed":
        short = f" Of the canary {_limits(pairs)}." if _limits(pairs) else ""
        more_words = f"; open: {gate.reasons[0]}." + more + short if gate.reasons else "." + short
        asked = [_in_words(question) for question in gate.counts if _is_answered(pairs, question)]
        return f"{canary} is no worse than {against} in {', '.join(asked) or 'anything that could be asked'}" + more_words
    if gate.outcome == "failed":
        return f"{canary} does not pass against {against}: {gate.reasons[0]}." + more
    return f"{canary} cannot be compared with {against}: {gate.reasons[0]}." + more
