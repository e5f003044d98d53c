"""The words of a story for how a change is made, as the numbers of one split."""

import re
from decimal import Decimal

from ckaudit.lab.specs import Amount


def in_numbers(text: str, amount: Amount) -> str:
    """Return a title or a story with its strength and its onset as numbers.

    >>> in_numbers("From the onset on the rate is `strength` times the healthy one.", Amount(onset=150, strength=1e-5))
    'From step 150 on the rate is 0.00001 times the healthy one.'
    """
    start = f"step {amount.onset}" if amount.onset else "the start"
    told = re.sub(r"\bthe onset\b", start, text).replace("`onset`", str(amount.onset))
    return told.replace("`strength`", f"{Decimal(f'{amount.strength:g}'):,f}")
