"""Two people talk: about a price, a meeting or a lost thing. Numbers, names and pronouns must agree across the line."""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine

WOMEN = ("anna", "mia", "rosa", "clara", "ines", "ruth")
MEN = ("tom", "ben", "omar", "paul", "ivan", "luis")
PRICES = {"apples": 1, "lemons": 2, "candles": 3, "maps": 4, "books": 5, "lamps": 6, "hats": 7, "chairs": 8, "bags": 9}
COLOURS = ("red", "green", "small", "old", "cheap", "blue", "dark")
THINGS = ("bicycle", "key", "phone", "coat", "guitar", "umbrella", "ladder", "camera", "pen")
PLACES = ("station", "market", "harbour", "library", "garden", "bridge", "office", "school", "bakery")


def price(rng: Random) -> tuple[str, str, str, int, str, str]:
    """Draw who asks whom for the price of how many things."""
    return ("price", *_pair(rng), rng.randint(2, 12), rng.choice(COLOURS), rng.choice(tuple(PRICES)))


def meeting(rng: Random) -> tuple[str, str, str, int, str, str]:
    """Draw who wants to meet whom, when and where, and where the other is at that time."""
    here, there = rng.sample(PLACES, 2)
    return ("meeting", *_pair(rng), rng.randint(1, 9), here, there)


def loss(rng: Random) -> tuple[str, str, str, str, str, str]:
    """Draw who misses a thing, who knows of it, and who took it where."""
    owner, friend, taker = rng.sample(WOMEN + MEN, 3)
    return "loss", owner, friend, taker, rng.choice(THINGS), rng.choice(PLACES)


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one dialogue, with contents that are held out or are not."""
    kind = rng.choice(("price", "meeting", "loss"))
    if kind == "price":
        _, asker, seller, count, colour, things = choose(rng, price, held=held)
        text = f"{asker}: {count} {colour} {things}? {seller}: {count} {things} are {count * PRICES[things]} euros, {asker}."
    elif kind == "meeting":
        _, asker, friend, hour, here, there = choose(rng, meeting, held=held)
        text = (
            f"{asker}: at the {here} at {hour}? {friend}: no, i am at the {there} until {hour + 1}. {asker}: then at {hour + 2}."
        )
    else:
        _, owner, friend, taker, thing, place = choose(rng, loss, held=held)
        she, her = ("she", "her") if taker in WOMEN else ("he", "him")
        text = f"{owner}: where is my {thing}? {friend}: {taker} has it, {she} is at the {place}. {owner}: i will ask {her}."
    return CorpusLine(text=text, source="dialogue", slice="dialogue")


def _pair(rng: Random) -> tuple[str, str]:
    one, other = rng.sample(WOMEN + MEN, 2)
    return one, other
