"""What a sample of training data is made of: the catalogue's rows M29 to M38, M48 and the pattern part of M51."""

from ckaudit.data.measure import Tools, measure

__all__ = ["Tools", "measure"]
