"""Annotations of charts: thresholds of rules and baselines as lines, and marks for events at steps."""

import math
from collections.abc import Collection

import numpy as np

from ckaudit.contract.schema.panels import Mark
from ckaudit.metrics.scaling import unigram_entropy
from ckaudit.metrics.spikes import flagged, loss_excess
from ckaudit.panels.scene import Scene, codes_on
from ckaudit.rules import rules
from ckaudit.run.run_facts import later_sessions

SPIKY = {"train_loss_raw", "loss_excess"}
Line = tuple[str, float]


def marks(scene: Scene, names: Collection[str] | None = None, *, max_findings: int = 40) -> list[Mark]:
    """Return the marks of a chart, sorted by step.

    Args:
        scene: The run.
        names: The shown metrics: only findings on them are marked; None: everything is marked.
        max_findings: Largest number of findings, the most severe first.
    """
    codes = None if names is None else codes_on(scene.report.findings, names)
    findings = [
        Mark(
            step=finding.first_step,
            until=finding.last_step,
            kind="finding",
            text=finding.message,
            severity=finding.severity,
            code=finding.code,
            finding=place,
        )
        for place, finding in enumerate(scene.report.findings)
        if finding.first_step is not None and (codes is None or finding.code in codes)
    ]
    findings = findings[:max_findings] + _spikes(scene, names) + (_events(scene) if names is None else [])
    return sorted(findings, key=lambda mark: mark.step)


def _spikes(scene: Scene, names: Collection[str] | None, *, max_spikes: int = 20) -> list[Mark]:
    """Return the steps at which the loss stands out, the farthest if there are many; steps of findings are already marked."""
    if names is not None and not SPIKY & set(names):
        return []
    excess = loss_excess(scene.run)
    rows: list[int] = np.flatnonzero(flagged(excess)[:, 0]).tolist() if excess else []
    marked = {mark for finding in scene.report.findings for mark in (finding.first_step, finding.worst_step)}
    spikes = sorted(((float(excess.values[row, 0]), int(excess.steps[row])) for row in rows), reverse=True)[:max_spikes]
    return [
        Mark(step=step, kind="spike", text=f"the loss stands {far:.3g} robust standard deviations above its last 50 points")
        for far, step in spikes
        if step not in marked
    ]


def _events(scene: Scene) -> list[Mark]:
    of_events = [
        Mark(step=event.event_step, kind="event", text=f"a checkpoint was asked for by {', '.join(event.triggers) or 'nobody'}")
        for event in scene.run.events
    ]
    of_events += [
        Mark(
            step=int(session.resumed_from or 0),
            kind="resume",
            text=f"the run was taken up again after step {session.resumed_from}",
        )
        for session in later_sessions(scene.run.manifest)
    ]
    pairs = scene.comparison.pairs if scene.comparison else []
    return of_events + [
        Mark(step=pair.parting.step, kind="parting", text=pair.parting.message) for pair in pairs[:1] if pair.parting
    ]


# Limits and baselines drawn as lines: thresholds of rules, the uniform guess, the entropy of the tokens.
def threshold(code: str, *names: str) -> list[Line]:
    """Return thresholds of a rule as lines."""
    rule = rules()[code]
    return [(f"{code} {name.replace('_', ' ')}", float(rule.thresholds[name])) for name in names]


def baselines(scene: Scene) -> list[Line]:
    """Return the losses of an untrained model and of one that only counts tokens, if known."""
    facts = scene.run.manifest
    lines: list[Line] = []
    if facts is not None and isinstance(facts.vocabulary, int) and facts.vocabulary > 1:
        lines.append((f"uniform guess, ln {facts.vocabulary}", math.log(facts.vocabulary)))
    entropy = unigram_entropy(scene.run).late_median()
    if entropy is not None:
        lines.append(("1-gram baseline: entropy of the tokens of a batch", entropy))
    return lines
