"""An answer weighed by what triage says of the same run: never better than its findings, nor than its causes allow."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.causes.void import likely, voided
from ckaudit.contract.interview import Word
from ckaudit.contract.report import Diagnosis, Finding
from ckaudit.metrics import Metric
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.questions.question import Question, Said, questions, worse
from ckaudit.rules import Rule, rules
from ckaudit.run.run import Run

BY_HEART = 7  # the phase that asks what was scored, and is answered by it
RUINOUS = ("nonfinite_values", "hidden_nonfinite")
"""Rules whose finding, where it lasts to the end of the record, leaves nothing of the run that is well."""


class Weighed(Struct, frozen=True):
    """An answer that is not better than triage, and the findings that bear on it, gravest first."""

    said: Said
    findings: tuple[Finding, ...] = ()


def weigh(asked: Question, said: Said, run: Run, findings: Sequence[Finding], diagnoses: Sequence[Diagnosis]) -> Weighed:
    """Hold an answer against findings and causes.

    Those of the question's own rules count in full: sev2 leaves "watch" at best, what is graver "bad", and so does a finding
    that is what the question calls bad. A good answer is to be watched where numbers that it rests on mean nothing, where the
    run is ruined, where a cause that is about the same is likely, and where a finding that is grave or not over rests on the
    same numbers.

    Args:
        asked: The question.
        said: What the series say.
        run: The run, for the last step of its record.
        findings: What the rules found, gravest first; notes do not bear.
        diagnoses: What explains it, likeliest first.
    """
    grave = [each for each in findings if each.severity != "note"]
    own = [each for each in grave if each.name in asked.rules]
    if own:
        word: Word = "bad" if own[0].severity != "sev2" or _says_bad(asked, own) else "watch"
        own += [each for each in findings if each.code == asked.id]
        return Weighed(_never_better(said, word, f"{_told(own[0])}{_besides(own)}", own, diagnoses), tuple(own))
    if said.word == "bad":
        return Weighed(said, (*(each for each in grave if each.name in asked.weighs), *_of_answers(asked, findings)))
    if said.word != "good":
        return Weighed(said)
    for reason, doubts in _doubts(asked, run, grave, diagnoses):
        return Weighed(_never_better(said, "watch", reason, doubts, diagnoses), tuple(doubts))
    return Weighed(said)


def _says_bad(asked: Question, own: Sequence[Finding]) -> bool:
    """Tell whether a finding is what the question calls bad, by the one table."""
    return asked.id in BAD and any(each.name in BAD[asked.id].means for each in own)


def _of_answers(asked: Question, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that this bad answer has made, or that another answer rests on which says the same."""
    others = [questions()[id_] for id_ in BAD[asked.id].told_by] if asked.id in BAD else []
    codes = {asked.id, *(each.id for each in others)}
    names = {name for each in others for name in (*each.rules, *each.weighs)}
    return [each for each in findings if each.code in codes or (each.name in names and each.severity != "note")]


def _doubts(
    asked: Question, run: Run, grave: Sequence[Finding], diagnoses: Sequence[Diagnosis]
) -> Iterator[tuple[str, Sequence[Finding]]]:
    """Yield why a good answer cannot stand, each with the findings that say so."""
    rests = _rests_on(asked)
    reads = {path for metric in rests for path in (metric.name, *metric.reads)}
    for void in voided(grave, diagnoses):
        if reads & void.names:
            first = void.findings[0]
            yield f"{void.reason} ({first.code}{_since(first)})", void.findings
    ruin = [each for each in grave if asked.phase < BY_HEART and each.name in RUINOUS and _lasts(each, run)]
    if ruin:
        yield f"the run is no longer finite: {_told(ruin[0])}{_besides(ruin)}", ruin
    for cause in likely(diagnoses):
        if cause.cause in asked.causes:
            found = [each for each in grave if each.code in cause.explains]
            yield f"{cause.title.rstrip('.')} ({', '.join(dict.fromkeys(each.code for each in found))})", found
    yield from _on_the_same(asked, rests, [each for each in grave if each.severity != "sev2" or _lasts(each, run)])


def _on_the_same(asked: Question, rests: Sequence[Metric], grave: Sequence[Finding]) -> Iterator[tuple[str, Sequence[Finding]]]:
    """Yield the findings that rest on the same numbers, but for those that the question weighs by place and time itself.

    What was to be investigated and is over leaves the answer as it is.
    """
    by_code = rules()
    others = [each for each in grave if each.name not in asked.weighs]
    shared = [(each, metric) for each in others if (metric := _shared(each, by_code.get(each.code), rests))]
    if shared:
        (first, metric), found = shared[0], [each for each, _ in shared]
        yield f"{first.code}{_since(first)}, on the same {metric}: {first.message}{_besides(found)}", found


def _rests_on(asked: Question) -> list[Metric]:
    """Return the metrics without which there is no answer; where any of several would do, all of them."""
    needed = [each for each in asked.needs if isinstance(each, Metric)]
    return needed or asked.metrics


def _shared(finding: Finding, rule: Rule | None, rests: Iterable[Metric]) -> str:
    """Return the metric that a finding is of, or that its rule needs, among those that an answer rests on; else nothing."""
    named = {place.partition("/")[0] for place in (finding.where, *finding.also) if place}
    needed = named | ({each.name for each in rule.needs if isinstance(each, Metric)} if rule else set())
    return next((metric.name for metric in rests if metric.name in needed), "")


def _lasts(finding: Finding, run: Run) -> bool:
    return finding.last_step is None or run.last_step is None or finding.last_step >= run.last_step


def _never_better(said: Said, least: Word, told: str, found: Sequence[Finding], diagnoses: Sequence[Diagnosis]) -> Said:
    word: Word = worse(least, said.word) if said.word in ("good", "watch", "bad") else least
    likeliest = next((each.cause for each in causing(found, diagnoses)), "")
    cause = f"; the likeliest cause is {likeliest}" if likeliest else ""
    return replace(said, word=word, sentence=f"{told}{cause}. {said.sentence[:1].upper()}{said.sentence[1:]}")


def _told(finding: Finding) -> str:
    return f"{finding.code}{_since(finding)}: {finding.message}"


def _since(finding: Finding) -> str:
    return "" if finding.first_step is None else f" from step {finding.first_step}"


def _besides(found: Sequence[Finding]) -> str:
    """Return what else bears, by code: findings that speak of many places say so themselves."""
    counts = Counter(each.code for each in found[1:])
    told = [f"{count} more of {code}" if code == found[0].code else code for code, count in counts.items()]
    return f"; besides {', '.join(told)}" if told else ""


def causing(found: Iterable[Finding], diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Return the diagnoses that explain some of these findings, likeliest first."""
    codes = {each.code for each in found}
    return [each for each in diagnoses if codes & set(each.explains)]
