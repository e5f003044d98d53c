"""Bad answers become findings: what a question calls bad and no rule has found is a finding of its own.

It is judged beside the rules, so that the headline, `--questions`, `gate`, `watch`, `diff` and the report draw from the same
findings. The table of what is bad, and how grave, is `ckaudit/questions/bad_answer_table.py`.
"""

from collections.abc import Iterator, Mapping, Sequence

from ckaudit.audit.answer_from_series import BROKE, said
from ckaudit.audit.judge import Judgement, judge
from ckaudit.causes.cause import Findings
from ckaudit.contract.schema.report import SEVERITIES, Check, Finding, Outcome, Severity, SkipReason
from ckaudit.contract.violations import Kind
from ckaudit.policy.policy_schema import Clauses
from ckaudit.questions import questions
from ckaudit.questions.bad_answer_table import BAD, Bad
from ckaudit.questions.question import Question, SeriesAnswer
from ckaudit.rules import rules
from ckaudit.run.run import Run

HELP = "`ckaudit triage RUN --questions {phase}` shows the answer, and `ckaudit explain {id}` what it rests on."


def judge_answers(run: Run, findings: Sequence[Finding], clauses: Clauses) -> Judgement:
    """Put the questions to a run, and return a finding for each bad answer that no finding accounts for.

    Args:
        run: The run.
        findings: All that rules and readers found, before any of it is graded or accepted.
        clauses: The policy. A selection of rules is one of questions as well: none makes findings then.
    """
    if clauses.select is not None:
        return Judgement((), ())
    found = Findings(tuple(finding for finding in findings if finding.severity != "note"))
    asked = [question for question in questions().values() if question.id in BAD and not BAD[question.id].by_rules]
    answers = {question.id: (question, said(question, run, found)) for question in asked}
    bad = {id_: answer for id_, (_, answer) in answers.items() if answer.word == "bad"}
    made = [
        _finding(answers[id_][0], answer, run) for id_, answer in bad.items() if not _is_told(id_, bad, findings, run, clauses)
    ]
    codes = {finding.code for finding in made}
    return Judgement(tuple(made), tuple(_check(each, answer, codes) for each, answer in answers.values()))


def kinds_of_questions() -> Iterator[Kind]:
    """Yield what a bad answer is, as a kind of finding that a policy can name by code or by name."""
    for id_, bad in BAD.items():
        yield Kind(id_, bad.name, bad.severity, title_of(bad), _help(id_), ("triage",))


def title_of(bad: Bad) -> str:
    """Return what is wrong as a whole sentence.

    >>> title_of(BAD["D1.1"])
    'It does not train.'
    """
    return f"{bad.says[0].upper()}{bad.says[1:]}."


def _is_told(id_: str, bad: Mapping[str, SeriesAnswer], findings: Sequence[Finding], run: Run, clauses: Clauses) -> bool:
    """Tell whether a finding or another answer says already what makes an answer bad."""
    asked, table = questions()[id_], BAD[id_]
    if any(other in bad for other in table.told_by):
        return True
    names = {*asked.rules, *asked.weighs}
    if any(finding.name in {*names, *table.told_by_rules} and _is_as_grave(finding, table.severity) for finding in findings):
        return True
    changed = [rule for rule in rules().values() if rule.name in names and _is_changed(rule.name, rule.code, clauses)]
    return any(_is_as_grave(finding, table.severity) for finding in judge(run, changed).findings)


def _is_as_grave(finding: Finding, severity: Severity) -> bool:
    return SEVERITIES.index(finding.severity) <= SEVERITIES.index(severity)


def _is_changed(name: str, code: str, clauses: Clauses) -> bool:
    """Tell whether a policy leaves a rule out or moves its limits: what the rule would have found, somebody has decided on."""
    return clauses.severities.get(code) == "off" or name in clauses.thresholds


def _finding(asked: Question, answer: SeriesAnswer, run: Run) -> Finding:
    bad = BAD[asked.id]
    return Finding(
        code=asked.id,
        name=bad.name,
        severity=bad.severity,
        message=f"{bad.says}: {answer.sentence}",
        last_step=run.last_step,
        help=_help(asked.id),
    )


def _check(asked: Question, answer: SeriesAnswer, codes: set[str]) -> Check:
    """Return what became of a question, as of a rule."""
    bad = BAD[asked.id]
    judged = answer.word in ("good", "watch", "bad")
    outcome: Outcome = "error" if BROKE in answer.sentence else "passed" if judged else "skipped"
    reason: SkipReason = "not_applicable" if answer.word == "not_applicable" else "not_recorded"
    return Check(
        code=asked.id,
        name=bad.name,
        title=title_of(bad),
        severity=bad.severity,
        outcome="failed" if asked.id in codes and bad.severity != "note" else outcome,
        reason=reason if outcome == "skipped" else None,
        detail=None if judged else answer.sentence,
        findings=int(asked.id in codes),
    )


def _help(id_: str) -> str:
    return HELP.format(id=id_, phase=questions()[id_].phase)
