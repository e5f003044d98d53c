"""Weather reports: temperatures that rise to noon, wind from somewhere, and an advice that follows from them."""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine

TOWNS = ("Oslo", "Cairo", "Lima", "Quito", "Jaipur", "Zagreb", "Ghent", "Kyoto", "Vaduz", "Fez", "Xanten", "Windhoek")
SKIES = {"rain": "take an umbrella", "snow": "wear boots", "sun": "bring a hat", "fog": "drive slowly", "hail": "stay inside"}
WINDS = ("north", "south", "east", "west")


def report(rng: Random) -> tuple[str, str, int, int, str, int]:
    """Draw town, sky, the morning's temperature and its rise in degrees, and the wind's direction and speed in km/h."""
    sky = rng.choice(tuple(SKIES))
    low = rng.randint(-12, 0) if sky == "snow" else rng.randint(4, 28)
    return rng.choice(TOWNS), sky, low, rng.randint(2, 9), rng.choice(WINDS), rng.randint(1, 18) * 5


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one report, with facts that are held out or are not."""
    town, sky, low, rise, wind, speed = choose(rng, report, held=held)
    storm = ", storm" if speed > 60 else ""
    text = f"{town}: {sky}, {low}C to {low + rise}C (+{rise}), {wind} wind {speed} km/h{storm}; in {town} {SKIES[sky]}."
    return CorpusLine(text=text, source="weather", slice="weather")
