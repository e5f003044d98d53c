"""A finding on a scalar that was logged without a label does not name it twice."""

import json

import pytest

from ckaudit import triage
from ckaudit.audit.judge import named_once
from ckaudit.rules import rules
from ckaudit.rules.rule import Hit


def test_the_spectral_norm_is_not_of_spectral_norm(tmp_path):
    rows = [
        {"step": step, "train_loss_raw": 2.0 - step / 400, "spectral_norm": 2.0 * 1.2 ** max(0, step - 150)}
        for step in range(200)
    ]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    messages = [finding.message for finding in triage(tmp_path).findings if finding.where == "spectral_norm"]
    assert messages
    assert not [message for message in messages if "of spectral_norm" in message]


@pytest.mark.parametrize("code", sorted(rules()))
def test_no_rule_names_its_own_metric_after_of(code):
    rule = rules()[code]
    for metric in rule.metrics:
        hit = Hit.at([1], "note", "the size of {where} is {value}", where=metric.name, value=1.0)
        assert named_once(hit, rule).message == "the size is {value}"
    elsewhere = Hit.at([1], "note", "the size of {where} is {value}", where="blocks.0.attn", value=1.0)
    assert named_once(elsewhere, rule) is elsewhere
