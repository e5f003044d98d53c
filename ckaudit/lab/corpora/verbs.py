"""Sentences about twenty verbs, whose past tense is regular or must be learnt by heart.

A sentence joins a time, a subject, a verb form, a complement of that verb and perhaps a place: "yesterday my sister wrote a
letter at home". A tenth of the (subject, verb, complement) combinations is held out.
"""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine

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
PLACES = ("", "", "", " at home", " in the park", " near the lake", " in town", " by the sea")
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
    """Draw a subject, a verb and a complement that goes with it."""
    subject, verb = rng.choice(SUBJECTS), rng.choice(REGULAR + IRREGULAR)
    return subject, verb, rng.choice(COMPLEMENTS[verb])


def sentence(rng: Random, *, held: bool) -> tuple[str, str]:
    """Draw one sentence, from the held-out combinations or from all others, and the verb it is about."""
    subject, verb, complement = choose(rng, combination, held=held)
    tense = rng.choice(tuple(TIMES))
    clause = f"{subject} {conjugate(verb, tense, subject)} {complement}{rng.choice(PLACES)}"
    time = rng.choice(TIMES[tense])
    return (f"{time} {clause}" if rng.random() < 0.5 else f"{clause} {time}"), verb


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one sentence as a line; its slice is "regular" or "irregular"."""
    text, verb = sentence(rng, held=held)
    return CorpusLine(text=text, slice="irregular" if verb in IRREGULAR else "regular")
