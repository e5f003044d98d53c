"""What the tests of trainers share: the warnings of the libraries themselves, and when a recorded run is sound."""

import pytest

from ckaudit.audit import triage
from ckaudit.validate import validate

LIGHTNING_WARNINGS = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers:UserWarning"),
]


def assert_sound(folder, *, judged=8):
    """The folder follows the contract, and at least so many rules can judge it."""
    findings = [finding for finding in validate([folder]).findings if finding.severity != "note"]
    assert not findings, findings
    outcomes = [check.outcome for check in triage(folder).checks]
    assert sum(outcome in ("passed", "failed") for outcome in outcomes) >= judged, outcomes
