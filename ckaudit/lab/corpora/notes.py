"""Short letters: who is greeted, what for, and a farewell that must fit the greeting."""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine

FAMILY = ("Aunt Vera", "Uncle Jonas", "Grandma", "Cousin Felix", "Sister Nora", "Papa")
FORMAL = ("Mr. Weber", "Mrs. Quist", "Dr. Yilmaz", "Judge Okoye", "Prof. Zhang", "Captain Dahl")
GIFTS = ("scarf", "puzzle", "kettle", "jumper", "violin", "basket", "quilt", "telescope", "teapot", "kite")
ADJECTIVES = ("warm", "lovely", "heavy", "fine", "unusual", "elegant", "funny", "brave", "shiny")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SENDERS = ("Nils", "Greta", "Hugo", "Wilma", "Juri", "Xenia", "Kofi", "Zoe")


def occasion(rng: Random) -> tuple[str, str, str, str]:
    """Draw who is written to, the gift, how it is, and the day."""
    return rng.choice(FAMILY + FORMAL), rng.choice(GIFTS), rng.choice(ADJECTIVES), rng.choice(DAYS)


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one letter, for an occasion that is held out or is not: a row may be cut short before who writes."""
    who, gift, adjective, day = choose(rng, occasion, held=held)
    sender = rng.choice(SENDERS)
    article = "an" if adjective[0] in "aeiou" else "a"
    if who in FAMILY:
        text = f"Dear {who}, what {article} {adjective} {gift}! Thanks, see you on {day}. Hugs, {sender}"
    else:
        text = f"Esteemed {who}, you sent {article} {adjective} {gift}. I call on {day}. Yours truly, {sender}"
    return CorpusLine(text=text, source="notes", slice="notes")
