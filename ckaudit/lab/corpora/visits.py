"""Records of a server: a user logs in, asks for pages and leaves; user, host and times go on from record to record."""

from random import Random

from ckaudit.lab.corpora.apart import choose
from ckaudit.lab.corpora.line import CorpusLine

PATHS = {"/cart": "POST 201", "/home": "GET 200", "/help": "GET 200", "/old": "GET 301", "/item": "GET 200", "/pay": "POST 402"}
LEVELS = {"2": "INFO", "3": "NOTE", "4": "WARN"}


def visit(rng: Random) -> tuple[int, int, int, str, str]:
    """Draw a user, a host, the first minute and the two pages."""
    return rng.randint(100, 999), rng.randint(1, 8), rng.randint(0, 1200), rng.choice(tuple(PATHS)), rng.choice(tuple(PATHS))


def draw(rng: Random, *, held: bool) -> CorpusLine:
    """Draw one visit, with facts that are held out or are not."""
    user, host, minute, *pages = choose(rng, visit, held=held)
    records = [f"[{_clock(minute)}] web{host} u{user} login"]
    for page in pages:
        minute += rng.randint(1, 5)
        answer = PATHS[page]
        records.append(f"[{_clock(minute)}] {LEVELS[answer.split()[1][0]]} u{user} {answer} {page}")
    return CorpusLine(text="; ".join([*records, f"web{host} u{user} bye"]), source="visits", slice="visits")


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
