"""Inventories: what lies on a shelf, with the sum of its pieces and what is to be ordered."""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine

GOODS = ("nails", "bolts", "hinges", "wires", "jars", "valves", "tiles", "boxes", "gloves", "zips", "knobs", "axles")


def shelf(rng: Random) -> tuple[str, str, int, str, int]:
    """Draw the shelf and two goods with their pieces."""
    one, other = rng.sample(GOODS, 2)
    return f"{rng.choice('ABCDEFGH')}{rng.randint(1, 20)}", one, rng.randint(1, 49), other, rng.randint(1, 49)


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one inventory, with contents that are held out or are not."""
    place, one, few, other, many = choose(rng, shelf, held=held)
    order = one if few < many else other
    text = f"#{place} | {one} x{few} | {other} x{many} | sum {few + many} | order {order} -> #{place}"
    return CorpusLine(text=text, source="stock", slice="stock")
