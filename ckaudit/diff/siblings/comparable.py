"""Which runs named as siblings count: healthy ones of the same configuration."""

import json
from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.contract.schema.diff import Unlike
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import SEVERITIES, Finding
from ckaudit.diff.align import CommonAxis, pair_series
from ckaudit.diff.checkpoint_values import brief
from ckaudit.diff.comparability import find_mismatches, settings, settings_of
from ckaudit.diff.run_pair import GRAVE_SEVERITIES, OF_CLOCK
from ckaudit.diff.shared_start import RATE_DIGITS
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.run.run import Run

OF_CONFIGURATION = ("tokenizer", "data", "tokens")
"""Kinds of difference, besides settings, that make a training a different one."""

PLAN_OF_RATE = "planned_learning_rate"
"""The plan that is part of the configuration: another one shows in the learning rate."""

OF_CHANCE = ("data_order",)
"""Differences that the seed decides."""


def configuration_key(manifest: Manifest | None) -> bytes:
    """Return a key that is equal for runs of one configuration, from run.json alone; empty if it has no configuration."""
    configuration = {} if manifest is None else settings_of(manifest, PLAN_OF_RATE)
    return json.dumps(configuration, sort_keys=True, default=str).encode() if configuration else b""


def unlike_settings(sibling: Run, run: Run) -> list[str]:
    """Return the settings that differ, in a few words each; settings that only one run has do not count."""
    mismatches = [
        mismatch for mismatch in find_mismatches(sibling, run) if mismatch.left is not None and mismatch.right is not None
    ]
    names = {mismatch.name for mismatch in settings(mismatches)}
    differing = [mismatch for mismatch in mismatches if mismatch.name in names or _is_of_configuration(mismatch)]
    rate = [] if any("rate" in mismatch.name for mismatch in differing) else list(_first_rates(sibling, run))
    settings_in_words = [f"{one.name} is {brief(one.left, 40)} there and {brief(one.right, 40)} here" for one in differing]
    return [*settings_in_words, *rate]


def _is_of_configuration(mismatch: Unlike) -> bool:
    return mismatch.name == PLAN_OF_RATE or (mismatch.kind in OF_CONFIGURATION and mismatch.name not in OF_CHANCE)


def _first_rates(sibling: Run, run: Run) -> Iterator[str]:
    """Yield that the learning rates differ at the first step that both logged."""
    rates = pair_series(learning_rate(sibling), learning_rate(run), CommonAxis())
    rows = np.flatnonzero(rates.finite.any(axis=1))[:1]
    for row in rows.tolist():
        theirs, ours = rates.left[row], rates.right[row]
        if not np.allclose(theirs, ours, rtol=RATE_DIGITS, atol=0.0, equal_nan=True):
            column = int(np.argmax(theirs != ours))
            yield f"the learning rate at step {rates.steps[row]} is {theirs[column]:.4g} there and {ours[column]:.4g} here"


def is_of_one_machine(sibling: Run, run: Run) -> bool:
    """Tell whether nothing indicates that two runs used different hardware or libraries."""
    return not any("speed" in mismatch.invalidates for mismatch in find_mismatches(sibling, run))


def grave_illness(findings: Sequence[Finding]) -> str | None:
    """Return the most severe illness that disqualifies a sibling, None if it has none; findings on time do not count."""
    grave = [finding for finding in findings if finding.severity in GRAVE_SEVERITIES and finding.code not in OF_CLOCK]
    first = min(grave, key=lambda finding: SEVERITIES.index(finding.severity), default=None)
    return None if first is None else f"{first.severity} {first.code}, {first.message}"
