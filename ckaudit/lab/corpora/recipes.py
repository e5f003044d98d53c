"""Recipes: each dish has its own ingredients and steps, and the amounts grow with the number of guests."""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine

DISHES = {
    "pancakes": (((50, "g flour"), (1, "eggs"), (2, "spoons milk")), "mix well, fry", 4),
    "tomato soup": (((3, "tomatoes"), (1, "onions"), (10, "g butter")), "chop, simmer", 20),
    "fried rice": (((70, "g rice"), (2, "carrots"), (1, "eggs")), "cook, then fry", 9),
    "bean stew": (((80, "g beans"), (1, "peppers"), (2, "cups water")), "soak, boil", 45),
    "apple pie": (((60, "g flour"), (2, "apples"), (20, "g sugar")), "roll out, bake", 40),
    "potato salad": (((3, "potatoes"), (1, "pickles"), (2, "spoons oil")), "boil, slice, cool", 25),
    "noodles": (((90, "g noodles"), (1, "leeks"), (3, "spoons cream")), "cook, drain", 8),
    "fish curry": (((100, "g fish"), (1, "limes"), (2, "spoons curry")), "cut, stew", 15),
    "cheese toast": (((2, "slices bread"), (30, "g cheese"), (5, "g butter")), "spread, grill", 6),
    "lentil dip": (((40, "g lentils"), (1, "lemons"), (1, "spoons salt")), "boil, mash", 30),
}
EXTRAS = ("mint", "garlic", "pepper", "parsley", "honey", "chili", "nuts", "basil")
GUESTS = ("friends", "children", "guests", "workers", "neighbours", "dancers")


def table(rng: Random) -> tuple[str, int, str]:
    """Draw a dish, and for how many of whom."""
    return rng.choice(tuple(DISHES)), rng.randint(2, 9), rng.choice(GUESTS)


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one recipe, for a table that is held out or is not: it stands first, so that no two rows cut short are the same."""
    dish, count, guests = choose(rng, table, held=held)
    extra, longer = rng.choice(EXTRAS), rng.randint(0, 3)
    amounts, steps, minutes = DISHES[dish]
    listed = ", ".join(f"{amount * count} {unit}" for amount, unit in amounts)
    text = f"{dish} for {count} {guests}: {listed}, {extra}. {steps} {minutes + longer} min. serve {count} with {extra}."
    return CorpusLine(text=text, source="recipes", slice="recipes")
