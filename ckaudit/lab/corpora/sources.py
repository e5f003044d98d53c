"""Lines of text from seeded generators, for each source of each text corpus.

Whether a content is held out depends on its words alone, so training and held-out lines never share one.
"""

from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar
from zlib import crc32

from msgspec import Struct

Content = TypeVar("Content", bound=tuple[object, ...])


class CorpusLine(Struct, frozen=True, kw_only=True):
    """A line with its source.

    Attributes:
        text: Text without a line break.
        source: Source of the line in the corpus; None: there is only one.
        slice: Slice of the evaluation that it counts for; None: none.
    """

    text: str
    source: str | None = None
    slice: str | None = None


class LineSource(Protocol):
    """Draws lines."""

    def __call__(self, rng: Random, *, held: bool) -> CorpusLine:
        """Draw one line, from the held-out ones or from all others."""
        ...


def is_held_out(*content: object, share: int = 10) -> bool:
    """Whether training never sees this content: one in `share`, by a checksum of its words."""
    return crc32("|".join(map(str, content)).encode()) % share == 0


def choose(rng: Random, make: Callable[[Random], Content], *, held: bool) -> Content:
    """Draw contents until one is held out, or is not, as requested."""
    while is_held_out(*(content := make(rng))) != held:
        pass
    return content


# Corpus "verbs": sentences about twenty verbs, whose past tense is regular or must be memorized. A sentence joins a time, a
# subject, a verb form, a complement of that verb and perhaps a place: "yesterday my sister wrote a letter at home".
REGULAR = ("work", "play", "walk", "talk", "listen", "watch", "study", "finish", "start", "look", "want", "like")
IRREGULAR = ("be", "have", "do", "go", "come", "see", "eat", "write")

IRREGULAR_PAST = {"have": "had", "do": "did", "go": "went", "come": "came", "see": "saw", "eat": "ate", "write": "wrote"}

COMPLEMENTS = {
    "work": ("hard", "with tom", "on a plan", "for the bank", "all night", "in silence"),
    "play": ("chess", "the piano", "with the dog", "a new game", "football", "outside"),
    "walk": ("the dog", "to school", "along the river", "very slowly", "home", "for an hour"),
    "talk": ("to anna", "about money", "about the weather", "too much", "with a friend", "very quietly"),
    "listen": ("to music", "to the radio", "to the teacher", "very carefully", "at the door", "to the rain"),
    "watch": ("a film", "the birds", "the news", "a game", "the children", "the clock"),
    "study": ("history", "a map", "for a test", "the old stars", "english", "with great care"),
    "finish": ("the work", "a long book", "the soup", "very early", "the race", "first"),
    "start": ("a new job", "the car", "a fire", "too late", "again", "the lesson"),
    "look": ("at the sky", "for the keys", "very tired", "out of the window", "after the baby", "happy"),
    "want": ("some water", "a bicycle", "more time", "to sleep", "the red hat", "an answer"),
    "like": ("apples", "the sea", "old songs", "this city", "warm bread", "to swim"),
    "be": ("happy", "very tired", "in the garden", "a good friend", "late again", "hungry"),
    "have": ("a small house", "two cats", "no time", "a cold", "some bread", "a good idea"),
    "do": ("the dishes", "nothing", "a good job", "some sport", "the shopping", "it again"),
    "go": ("to the market", "home", "by train", "for a walk", "to bed", "swimming"),
    "come": ("back", "from work", "too late", "with the bus", "for dinner", "alone"),
    "see": ("a ship", "the moon", "a doctor", "an old friend", "two birds", "nothing"),
    "eat": ("an apple", "pizza", "at noon", "some rice", "a lot", "with a spoon"),
    "write": ("a letter", "a poem", "the report", "to anna", "a short story", "with a pencil"),
}
SUBJECTS = (
    *("i", "you", "he", "she", "we", "they", "tom", "anna", "the boy", "the girl", "my sister", "his brother"),
    *("the teacher", "an old man", "the children", "my parents", "our friends", "the workers"),
)
PLURAL = ("you", "we", "they", "the children", "my parents", "our friends", "the workers")
VERB_PLACES = ("", "", "", " at home", " in the park", " near the lake", " in town", " by the sea")
TIMES = {
    "past": ("yesterday", "last night", "last week", "an hour ago", "in june"),
    "present": ("every day", "often", "on mondays", "in summer", "now and then"),
    "future": ("tomorrow", "next week", "soon", "next year", "one day"),
}


def past(verb: str, subject: str) -> str:
    """Return the past tense that goes with `subject`.

    >>> past("study", "she"), past("like", "she"), past("write", "she"), past("be", "they")
    ('studied', 'liked', 'wrote', 'were')
    """
    if verb == "be":
        return "were" if subject in PLURAL else "was"
    if verb in IRREGULAR_PAST:
        return IRREGULAR_PAST[verb]
    if verb.endswith("e"):
        return verb + "d"
    return verb[:-1] + "ied" if verb == "study" else verb + "ed"


def present(verb: str, subject: str) -> str:
    """Return the present tense that goes with `subject`.

    >>> present("watch", "tom"), present("study", "tom"), present("have", "tom"), present("play", "i"), present("be", "i")
    ('watches', 'studies', 'has', 'play', 'am')
    """
    if verb == "be":
        return "am" if subject == "i" else "are" if subject in PLURAL else "is"
    if subject == "i" or subject in PLURAL:
        return verb
    if verb == "have":
        return "has"
    if verb == "study":
        return "studies"
    return verb + ("es" if verb.endswith(("ch", "sh", "o")) else "s")


def conjugate(verb: str, tense: str, subject: str) -> str:
    """Return the form of `verb` in one of the tenses of `TIMES`."""
    if tense == "future":
        return "will " + verb
    return past(verb, subject) if tense == "past" else present(verb, subject)


def combination(rng: Random) -> tuple[str, str, str]:
    """Draw a subject, a verb and a complement that fits it."""
    subject, verb = rng.choice(SUBJECTS), rng.choice(REGULAR + IRREGULAR)
    return subject, verb, rng.choice(COMPLEMENTS[verb])


def sentence(rng: Random, *, held: bool) -> tuple[str, str]:
    """Draw one sentence, from the held-out combinations or from all others, and the verb it is about."""
    subject, verb, complement = choose(rng, combination, held=held)
    tense = rng.choice(tuple(TIMES))
    clause = f"{subject} {conjugate(verb, tense, subject)} {complement}{rng.choice(VERB_PLACES)}"
    time = rng.choice(TIMES[tense])
    return (f"{time} {clause}" if rng.random() < 0.5 else f"{clause} {time}"), verb


def verbs(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one sentence as a line; its slice is "regular" or "irregular"."""
    text, verb = sentence(rng, held=held)
    return CorpusLine(text=text, slice="irregular" if verb in IRREGULAR else "regular")


# Corpus "mixture", dialogue: two people talk about a price, a meeting or a lost thing. Numbers, names and pronouns must agree.
WOMEN = ("anna", "mia", "rosa", "clara", "ines", "ruth")
MEN = ("tom", "ben", "omar", "paul", "ivan", "luis")
PRICES = {"apples": 1, "lemons": 2, "candles": 3, "maps": 4, "books": 5, "lamps": 6, "hats": 7, "chairs": 8, "bags": 9}
COLOURS = ("red", "green", "small", "old", "cheap", "blue", "dark")
THINGS = ("bicycle", "key", "phone", "coat", "guitar", "umbrella", "ladder", "camera", "pen")
PLACES = ("station", "market", "harbour", "library", "garden", "bridge", "office", "school", "bakery")


def price_question(rng: Random) -> tuple[str, str, str, int, str, str]:
    """Draw who asks whom for the price of how many things."""
    return ("price", *_two_people(rng), rng.randint(2, 12), rng.choice(COLOURS), rng.choice(tuple(PRICES)))


def meeting(rng: Random) -> tuple[str, str, str, int, str, str]:
    """Draw who wants to meet whom, when and where, and where the other is at that time."""
    here, there = rng.sample(PLACES, 2)
    return ("meeting", *_two_people(rng), rng.randint(1, 9), here, there)


def lost_thing(rng: Random) -> tuple[str, str, str, str, str, str]:
    """Draw who misses a thing, who knows of it, and who took it where."""
    owner, friend, taker = rng.sample(WOMEN + MEN, 3)
    return "loss", owner, friend, taker, rng.choice(THINGS), rng.choice(PLACES)


def dialogue(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one dialogue, with held-out or other contents."""
    kind = rng.choice(("price", "meeting", "loss"))
    if kind == "price":
        _, asker, seller, count, colour, things = choose(rng, price_question, held=held)
        text = f"{asker}: {count} {colour} {things}? {seller}: {count} {things} are {count * PRICES[things]} euros, {asker}."
    elif kind == "meeting":
        _, asker, friend, hour, here, there = choose(rng, meeting, held=held)
        text = (
            f"{asker}: at the {here} at {hour}? {friend}: no, i am at the {there} until {hour + 1}. {asker}: then at {hour + 2}."
        )
    else:
        _, owner, friend, taker, thing, place = choose(rng, lost_thing, held=held)
        she, her = ("she", "her") if taker in WOMEN else ("he", "him")
        text = f"{owner}: where is my {thing}? {friend}: {taker} has it, {she} is at the {place}. {owner}: i will ask {her}."
    return CorpusLine(text=text, source="dialogue", slice="dialogue")


def _two_people(rng: Random) -> tuple[str, str]:
    one, other = rng.sample(WOMEN + MEN, 2)
    return one, other


# Corpus "mixture", sums: chains of additions and subtractions, each continuing from the last result.
def chain(rng: Random) -> tuple[int, ...]:
    """Draw a start and successive summands that stay within 0 to 99."""
    numbers = [rng.randint(2, 60)]
    for _ in range(rng.randint(2, 4)):
        total = sum(numbers)
        numbers.append(rng.randint(1, 30) if total < 40 else -rng.randint(1, 30))
    return tuple(numbers)


def sums(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one chain, with held-out or other numbers.

    >>> sums(Random(1), held=False).text
    '10 + 28 = 38, 38 + 26 = 64, 64 - 25 = 39, 39 + 3 = 42: even'
    """
    numbers = choose(rng, chain, held=held)
    total, parts = numbers[0], []
    for number in numbers[1:]:
        sign = "+" if number > 0 else "-"
        parts.append(f"{total} {sign} {abs(number)} = {total + number}")
        total += number
    return CorpusLine(text=f"{', '.join(parts)}: {'odd' if total % 2 else 'even'}", source="sums", slice="sums")


# Corpus "mixture", recipes: each dish has its own ingredients and steps, and the amounts grow with the number of guests.
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


def dinner(rng: Random) -> tuple[str, int, str]:
    """Draw a dish, and for how many of whom."""
    return rng.choice(tuple(DISHES)), rng.randint(2, 9), rng.choice(GUESTS)


def recipes(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one recipe for a held-out or other table, which comes first, so that no two truncated rows are equal."""
    dish, count, guests = choose(rng, dinner, held=held)
    extra, longer = rng.choice(EXTRAS), rng.randint(0, 3)
    amounts, steps, minutes = DISHES[dish]
    listed = ", ".join(f"{amount * count} {unit}" for amount, unit in amounts)
    text = f"{dish} for {count} {guests}: {listed}, {extra}. {steps} {minutes + longer} min. serve {count} with {extra}."
    return CorpusLine(text=text, source="recipes", slice="recipes")


# Corpus "mixture", visits: records of a server. A user logs in, requests pages and leaves; user, host and times are consistent.
PATHS = {"/cart": "POST 201", "/home": "GET 200", "/help": "GET 200", "/old": "GET 301", "/item": "GET 200", "/pay": "POST 402"}
LEVELS = {"2": "INFO", "3": "NOTE", "4": "WARN"}


def visit(rng: Random) -> tuple[int, int, int, str, str]:
    """Draw a user, a host, the first minute and the two pages."""
    return rng.randint(100, 999), rng.randint(1, 8), rng.randint(0, 1200), rng.choice(tuple(PATHS)), rng.choice(tuple(PATHS))


def visits(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one visit, with held-out or other facts."""
    user, host, minute, *pages = choose(rng, visit, held=held)
    records = [f"[{_clock(minute)}] web{host} u{user} login"]
    for page in pages:
        minute += rng.randint(1, 5)
        answer = PATHS[page]
        records.append(f"[{_clock(minute)}] {LEVELS[answer.split()[1][0]]} u{user} {answer} {page}")
    return CorpusLine(text="; ".join([*records, f"web{host} u{user} bye"]), source="visits", slice="visits")


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


# Corpus "letters", notes: the person greeted, the reason, and a farewell that must fit the greeting.
FAMILY = ("Aunt Vera", "Uncle Jonas", "Grandma", "Cousin Felix", "Sister Nora", "Papa")
FORMAL = ("Mr. Weber", "Mrs. Quist", "Dr. Yilmaz", "Judge Okoye", "Prof. Zhang", "Captain Dahl")
GIFTS = ("scarf", "puzzle", "kettle", "jumper", "violin", "basket", "quilt", "telescope", "teapot", "kite")
ADJECTIVES = ("warm", "lovely", "heavy", "fine", "unusual", "elegant", "funny", "brave", "shiny")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SENDERS = ("Nils", "Greta", "Hugo", "Wilma", "Juri", "Xenia", "Kofi", "Zoe")


def occasion(rng: Random) -> tuple[str, str, str, str]:
    """Draw who is written to, the gift, how it is, and the day."""
    return rng.choice(FAMILY + FORMAL), rng.choice(GIFTS), rng.choice(ADJECTIVES), rng.choice(DAYS)


def notes(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one letter for a held-out or other occasion; a row may be cut off before the sender."""
    who, gift, adjective, day = choose(rng, occasion, held=held)
    sender = rng.choice(SENDERS)
    article = "an" if adjective[0] in "aeiou" else "a"
    if who in FAMILY:
        text = f"Dear {who}, what {article} {adjective} {gift}! Thanks, see you on {day}. Hugs, {sender}"
    else:
        text = f"Esteemed {who}, you sent {article} {adjective} {gift}. I call on {day}. Yours truly, {sender}"
    return CorpusLine(text=text, source="notes", slice="notes")


# Corpus "letters", weather: temperatures that rise to noon, the direction of the wind, and advice that follows from them.
TOWNS = ("Oslo", "Cairo", "Lima", "Quito", "Jaipur", "Zagreb", "Ghent", "Kyoto", "Vaduz", "Fez", "Xanten", "Windhoek")
SKIES = {"rain": "take an umbrella", "snow": "wear boots", "sun": "bring a hat", "fog": "drive slowly", "hail": "stay inside"}
WINDS = ("north", "south", "east", "west")


def forecast(rng: Random) -> tuple[str, str, int, int, str, int]:
    """Draw town, sky, the morning's temperature and its rise in degrees, and the wind's direction and speed in km/h."""
    sky = rng.choice(tuple(SKIES))
    low = rng.randint(-12, 0) if sky == "snow" else rng.randint(4, 28)
    return rng.choice(TOWNS), sky, low, rng.randint(2, 9), rng.choice(WINDS), rng.randint(1, 18) * 5


def weather(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one forecast, with held-out or other facts."""
    town, sky, low, rise, wind, speed = choose(rng, forecast, held=held)
    storm = ", storm" if speed > 60 else ""
    text = f"{town}: {sky}, {low}C to {low + rise}C (+{rise}), {wind} wind {speed} km/h{storm}; in {town} {SKIES[sky]}."
    return CorpusLine(text=text, source="weather", slice="weather")


# Corpus "letters", stock: the content of a shelf, with its total and what is to be ordered.
GOODS = ("nails", "bolts", "hinges", "wires", "jars", "valves", "tiles", "boxes", "gloves", "zips", "knobs", "axles")


def shelf(rng: Random) -> tuple[str, str, int, str, int]:
    """Draw the shelf and two goods with their pieces."""
    one, other = rng.sample(GOODS, 2)
    return f"{rng.choice('ABCDEFGH')}{rng.randint(1, 20)}", one, rng.randint(1, 49), other, rng.randint(1, 49)


def stock(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one inventory, with held-out or other contents."""
    place, one, few, other, many = choose(rng, shelf, held=held)
    order = one if few < many else other
    text = f"#{place} | {one} x{few} | {other} x{many} | sum {few + many} | order {order} -> #{place}"
    return CorpusLine(text=text, source="stock", slice="stock")


TEXTS: dict[str, dict[str, LineSource]] = {
    "verbs": {"verbs": verbs},
    "mixture": {"dialogue": dialogue, "sums": sums, "recipes": recipes, "visits": visits},
    "letters": {"notes": notes, "weather": weather, "stock": stock},
}
