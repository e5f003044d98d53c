"""Limits and baselines that are drawn as lines: the thresholds of rules, the uniform guess, the entropy of the tokens."""

import math

from ckaudit.metrics.scaling import unigram_entropy
from ckaudit.panels.context import Scene
from ckaudit.rules import rules

Line = tuple[str, float]


def threshold(code: str, *names: str) -> list[Line]:
    """Return thresholds of a rule as lines."""
    rule = rules()[code]
    return [(f"{code} {name.replace('_', ' ')}", float(rule.thresholds[name])) for name in names]


def baselines(scene: Scene) -> list[Line]:
    """Return what a model without any training and one that only counts tokens would have as loss, where that is known."""
    facts = scene.run.manifest
    lines: list[Line] = []
    if facts is not None and isinstance(facts.vocabulary, int) and facts.vocabulary > 1:
        lines.append((f"uniform guess, ln {facts.vocabulary}", math.log(facts.vocabulary)))
    entropy = unigram_entropy(scene.run).late_median()
    if entropy is not None:
        lines.append(("1-gram baseline: entropy of the tokens of a batch", entropy))
    return lines
