"""A run judged under a policy and held against a baseline."""

from msgspec.structs import replace

from ckaudit.audit.bad_answers import judge_answers
from ckaudit.audit.judge import judge
from ckaudit.audit.ranking import ranked
from ckaudit.audit.scale_and_stage import scale_of, stage_of
from ckaudit.contract.schema.numbers import takes_any_numbers
from ckaudit.contract.schema.report import Check, PolicyUsed
from ckaudit.contract.violations import kind
from ckaudit.metrics.loss import slice_val_loss
from ckaudit.plugins import broken
from ckaudit.policy.apply_policy import Settled, settle
from ckaudit.policy.configure_rules import tailored
from ckaudit.policy.gate import Gate
from ckaudit.policy.policy_schema import Clauses
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.rules import rules
from ckaudit.run.run import Run

BROKEN_PLUGIN = kind(
    "PLUG001",
    "broken_plugin",
    "sev1",
    "A package with rules, causes or metrics does not load.",
    "Update or uninstall the package that is named; the audit is made without it.",
    found_by=("triage",),
)


def clauses_of(run: Run, gate: Gate) -> tuple[Clauses, PolicyUsed | None]:
    """Return what the policy says of a run of its scale and stage; the run's own word counts where the policy has none."""
    if gate.policy is None:
        return gate.at()
    return gate.at(scale_of(run).word, stage_of(run).word)


@takes_any_numbers
def settle_run(run: Run, clauses: Clauses, gate: Gate) -> Settled:
    """Apply the rules that a policy wants, put the questions, and sort what is found into what counts and what is accepted.

    A question is listed among the checks only where it made a finding.
    """
    judging, disabled = tailored(rules().values(), clauses)
    judgement = judge(run, judging)
    found = (*run.findings, *judgement.findings)
    answered = judge_answers(run, found, clauses)
    findings = ranked((*found, *answered.findings), run)
    checks = sorted((*judgement.checks, *disabled, *answered.checks), key=lambda check: check.code)
    settled = settle(findings, checks, today=gate.today, clauses=clauses, baseline=gate.baseline)
    return replace(settled, checks=[check for check in settled.checks if check.code not in BAD or _is_listed(check)])


def _is_listed(check: Check) -> bool:
    """Tell whether the check of a question is to be shown."""
    return bool(check.findings or check.suppressed) or check.outcome == "error"


def with_slices(run: Run, clauses: Clauses) -> Run:
    """Return a run that knows which slices the policy has tau compare; the command line's word counts before it."""
    if clauses.tau_slices is None or run.tau_slices is not None:
        return run
    return replace(run, tau_slices=clauses.tau_slices, _derived={})


def broken_plugins() -> list[Check]:
    """Return a check that broke for each plugin that did not load: without its rules the audit is not complete."""
    what = BROKEN_PLUGIN
    return [
        Check(code=what.code, name=what.name, title=what.title, severity=what.severity, outcome="error", detail=str(each))
        for each in broken()
    ]


def unwatched(run: Run, clauses: Clauses) -> list[str]:
    """Return a sentence on the slices that the policy watches and the run does not record."""
    recorded = slice_val_loss(run)
    known = {label.rpartition("/")[2] for label in recorded.labels} if recorded else set()
    missing = [name for name in clauses.slices or () if name not in known]
    return [f"the policy watches {', '.join(missing)}, of which no slice_val_loss is recorded"] if missing else []
