"""Every illness bears on a question, and no answer is better than what triage says of the same run."""

from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.causes import causes
from ckaudit.causes.shared.void import VOID_REASONS, likely_diagnoses
from ckaudit.metrics import Metric, metrics
from ckaudit.questions import questions
from ckaudit.rules import rules

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
NAMES = sorted(path.parent.name for path in RUNS.glob("*/expected.toml"))

NAMED = "bears on the answers that rest on the number it names"
STORED = "is of files: the training itself is not asked about them"
SYSTEM = "is of time and machines, of which the playbook asks nothing"
SAFE = "is of what the text says, of which the playbook asks nothing"
ASIDE = {
    "contradicted_claim": NAMED,
    "impossible_value": NAMED,
    "off_its_playbook": NAMED,
    "undecided_unit": NAMED,
    "missing_checkpoint": STORED,
    "broken_checkpoint": STORED,
    "heavy_checkpoints": STORED,
    "straggler": SYSTEM,
    "missing_heartbeat": SYSTEM,
    "communication_rising": SYSTEM,
    "slow_input": SYSTEM,
    "step_time_jump": SYSTEM,
    "monitoring_blackout": SYSTEM,
    "low_utilization": SYSTEM,
    "memory_creep": SYSTEM,
    "throughput_drop": SYSTEM,
    "restart_storm": SYSTEM,
    "error_events": SYSTEM,
    "late_metrics": SYSTEM,
    "recording_overhead": SYSTEM,
    "unsafe_data": SAFE,
    "toxicity_rising": SAFE,
}
"""Rules more grave than a note that bear on no question of their own, and why."""


def test_every_rule_more_grave_than_a_note_bears_on_a_question():
    bearing = {name for question in questions().values() for name in (*question.rules, *question.weighs)}
    grave = {rule.name for rule in rules().values() if rule.severity != "note"}
    assert grave - bearing == set(ASIDE)


def test_what_questions_name_exists():
    names = {rule.name for rule in rules().values()}
    for question in questions().values():
        assert set(question.weighs) <= names
        assert set(question.causes) <= set(causes())
        assert not set(question.weighs) & set(question.rules), question.id


def test_what_voids_losses_names_what_exists():
    read = {path for metric in metrics().values() for path in (metric.name, *metric.reads)}
    for void in VOID_REASONS:
        assert void.cause or void.rules
        assert not void.cause or void.cause in causes()
        assert set(void.rules) <= {rule.name for rule in rules().values()}
        assert set(void.names) <= read


@pytest.mark.parametrize("name", NAMES)
def test_no_good_answer_rests_on_what_a_finding_or_a_cause_speaks_against(name):
    report = triage(RUNS / name, questions=range(1, 8))
    by_code = rules()
    grave = [each for each in report.findings if each.severity != "note"]
    ruined = any(each.name == "nonfinite_values" and each.last_step == report.step for each in grave)
    for answer in (each for phase in report.interview for each in phase.answers if each.word == "good"):
        question = questions()[answer.id]
        needed = {each.name for each in question.needs if isinstance(each, Metric)}
        for each in grave:
            assert each.name not in question.rules
            read = {metric.name for metric in by_code[each.code].needs if isinstance(metric, Metric)}
            is_over = each.severity == "sev2" and each.last_step is not None and each.last_step < report.step
            assert each.name in question.weighs or is_over or not needed & {*read, each.where}, (answer.id, each.code)
        assert not {each.cause for each in likely_diagnoses(report.diagnoses)} & set(question.causes)
        assert not ruined or question.phase == 7
        assert answer.findings == []
