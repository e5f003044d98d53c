"""The catalogue of illnesses: one file per symptom, named after it."""

from ckaudit.rules.rule import FACTS, Hit, Rule, Skip, rule, rules

__all__ = ["FACTS", "Hit", "Rule", "Skip", "rule", "rules"]
