"""Measurements of a sample of training data: rows M29 to M38, M48 and the pattern part of M51 of the catalogue."""

from ckaudit.data.measure import Tools, measure

__all__ = ["Tools", "measure"]
