"""Values that runs can share: every value of every fact, thresholds of numbers, and windows of start time."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.schema.fleet import CommonField, FleetRun
from ckaudit.fleet.common_causes.odds import MIN_HITS, Ints

Bools = NDArray[np.bool_]
Range = Literal["is", "at least", "at most", "between"]

MAX_CUTS = 24
"""Maximum number of thresholds of one number, in both directions."""
MAX_GAPS, MAX_COMMITS, MAX_SHARES = 32, 16, 16
"""Maximum number of window borders: the longest pauses between two starts, the first runs of commits, and quantiles of the
runs."""
NO_CAUSE = ("name", "sessions")
"""Facts that are no cause: the name of a run, the number of its sessions."""
ONE_DEVICE = "node and device"
"""A fact combined from two: a device is counted within its node."""
NUMBERED = re.compile(r"(^|[._-])(seed|port|pid|rank|id|jobid|job|uuid|hash|commit|version|index|revision)$", re.IGNORECASE)
"""Names of numbers that are identifiers: more or less of them means nothing."""
FIELDS: Mapping[str, CommonField] = {
    "git.commit": "commit",
    "node": "node",
    "device": "device",
    ONE_DEVICE: "device",
    "start": "start",
}
SEVERAL = re.compile(r"\s*[,;]\s*")


class Question(NamedTuple):
    """A question: whether runs share values of one fact, from one level up to another.

    Attributes:
        field: Kind of the fact.
        fact: Name of the fact.
        low: First level.
        high: End of the levels, exclusive.
        kind: Meaning of the levels.
    """

    field: CommonField
    fact: str
    low: int
    high: int
    kind: Range


class Values:
    """Every fact of every run, as numbered levels, and the questions about them."""

    def __init__(self, runs: Sequence[FleetRun]) -> None:
        self.count = len(runs)
        self.levels: list[str] = []
        self.questions: list[Question] = []
        self._pairs: list[tuple[Ints, Ints]] = []
        self._known: list[Bools] = []
        fact_of: list[int] = []
        has_config = np.array([any(name.startswith("config.") for name in run.facts) for run in runs], bool)
        for name, texts in _facts(runs).items():
            field = field_of(name)
            known = np.zeros(self.count, bool)
            known[list(texts)] = True
            asked = self._ask_start(name, texts, runs) if field == "start" else self._ask(name, field, texts)
            self.questions += asked
            fact_of += [len(self._known)] * len(asked)
            self._known.append(has_config if name.startswith("config.") else known)
        empty = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.run, self.level = (np.concatenate(part) for part in zip(*(self._pairs or [empty]), strict=True))
        self.low = np.array([question.low for question in self.questions], np.int64)
        self.high = np.array([question.high for question in self.questions], np.int64)
        self.fact_of = np.array(fact_of, np.int64)
        self.known = np.array(self._known, bool).reshape(len(self._known), self.count)

    def _add(self, names: Sequence[str], runs: Ints, levels: Ints) -> int:
        first = len(self.levels)
        self.levels += names
        self._pairs.append((runs, levels + first))
        return first

    def _ask(self, name: str, field: CommonField, texts: Mapping[int, str]) -> list[Question]:
        whose, words = _several(texts) if name in {"node", "device"} else (list(texts), list(texts.values()))
        numbers = {} if NUMBERED.search(name) else _numbers(set(words))
        if not numbers and max(Counter(words).values(), default=0) < MIN_HITS:
            return []
        names = sorted(set(words), key=lambda word: (numbers.get(word, 0.0), word))
        levels, having = _levels(words, names)
        first = self._add(names, np.array(whose, np.int64), levels)
        single = [Question(field, name, first + at, first + at + 1, "is") for at in np.flatnonzero(having >= MIN_HITS).tolist()]
        end = first + len(names)
        for cut in _cuts(np.array([numbers[word] for word in names]), having) if numbers else ():
            single += [Question(field, name, first, first + cut, "at most"), Question(field, name, first + cut, end, "at least")]
        return single

    def _ask_start(self, name: str, texts: Mapping[int, str], runs: Sequence[FleetRun]) -> list[Question]:
        numbers = _numbers(set(texts.values()))
        if not numbers:
            return []
        names = sorted(numbers, key=lambda word: numbers[word])
        levels, _ = _levels(texts.values(), names)
        first = self._add(names, np.array(list(texts), np.int64), levels)
        commits = _first_of_each(zip(levels.tolist(), (runs[run].facts.get("git.commit") for run in texts), strict=True))
        borders = _borders(np.array([numbers[word] for word in names]), commits)
        return [
            Question("start", name, first + low, first + high, "between")
            for at, low in enumerate(borders)
            for high in borders[at + 1 :]
            if high - low < len(names)
        ]

    def having(self, chosen: Bools) -> Ints:
        """Return the number of chosen runs for which each question holds."""
        counts_by_level = np.bincount(self.level[chosen[self.run]], minlength=len(self.levels))
        upto = np.concatenate([[0], np.cumsum(counts_by_level)])
        counts: Ints = upto[self.high] - upto[self.low]
        return counts

    def known_of(self, chosen: Bools) -> Ints:
        """Return the number of chosen runs for which the fact of each question is known."""
        return (self.known @ chosen.astype(np.int64))[self.fact_of] if self.fact_of.size else np.zeros(0, np.int64)

    def marks(self, chosen: Bools) -> Ints:
        """Return a number per question, equal for questions that hold for the same chosen runs."""
        weights = np.random.default_rng(0).integers(1, 2**30, (2, self.count))
        columns = []
        for weight in weights:
            sums_by_level = np.bincount(self.level, weights=(weight * chosen)[self.run], minlength=len(self.levels))
            upto = np.concatenate([[0.0], np.cumsum(sums_by_level)])
            columns.append((upto[self.high] - upto[self.low]).astype(np.int64))
        marks: Ints = columns[0] * 1_000_003 + columns[1]
        return marks

    def alike(self, members: Bools, known: Bools) -> Iterator[tuple[str, str]]:
        """Yield fact and value of each question that holds for exactly these of the known runs; only one threshold per fact."""
        if not self.questions:
            return
        weights = np.random.default_rng(1).integers(1, 2**40, self.count)
        sums_by_level = np.bincount(self.level, weights=(weights * known)[self.run], minlength=len(self.levels))
        upto = np.concatenate([[0.0], np.cumsum(sums_by_level)])
        ranged = set()
        for number in np.flatnonzero(upto[self.high] - upto[self.low] == (weights * (members & known)).sum()).tolist():
            question = self.questions[number]
            if question.kind == "is" or question.fact not in ranged:
                yield question.fact, self.shown(number)
            ranged.add(question.fact)

    def members(self, question: int) -> Bools:
        """Return the runs for which a question holds."""
        is_member = np.zeros(self.count, bool)
        is_member[self.run[(self.level >= self.low[question]) & (self.level < self.high[question])]] = True
        return is_member

    def shown(self, question: int) -> str:
        """Return the value of a question in words.

        Example: `0.01`, `>= 0.01`, `2026-03-01 10:00 to 2026-03-01 14:30 UTC`.
        """
        asked = self.questions[question]
        low, high = self.levels[asked.low], self.levels[asked.high - 1]
        if asked.kind == "between":
            return f"{moment(low)} to {moment(high)} UTC"
        return {"at least": f">= {low}", "at most": f"<= {high}"}.get(asked.kind, low)


def field_of(name: str) -> CommonField:
    """Return the kind of a fact; a fact without its own kind counts as configuration.

    >>> field_of("git.commit"), field_of("config.lr"), field_of("seed")
    ('commit', 'config', 'config')
    """
    return FIELDS.get(name, "config")


def moment(unix: str) -> str:
    """Return a Unix time in words, in UTC.

    >>> moment("1772359200")
    '2026-03-01 10:00'
    """
    try:
        return datetime.fromtimestamp(float(unix), UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return unix


def _facts(runs: Sequence[FleetRun]) -> dict[str, dict[int, str]]:
    """Return each fact with its value by run, without facts that are no cause or have one value in all runs."""
    values_by_fact: dict[str, dict[int, str]] = {}
    for place, run in enumerate(runs):
        for name, text in run.facts.items():
            values_by_fact.setdefault(name, {})[place] = text
        if "node" in run.facts and "device" in run.facts:
            values_by_fact.setdefault(ONE_DEVICE, {})[place] = f"{run.facts['node']} {run.facts['device']}"
    known = {name: texts for name, texts in sorted(values_by_fact.items()) if name not in NO_CAUSE}
    return {name: texts for name, texts in known.items() if len(texts) < len(runs) or len(set(texts.values())) > 1}


def _several(texts: Mapping[int, str]) -> tuple[list[int], list[str]]:
    """Return runs and words in parallel; a text may name several things, such as the nodes of a run."""
    split = {text: sorted(filter(None, set(SEVERAL.split(text)))) for text in set(texts.values())}
    pairs = [(run, word) for run, text in texts.items() for word in split[text]]
    return [run for run, _ in pairs], [word for _, word in pairs]


def _levels(words: Collection[str], names: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the index of each word in the names, and how often each name occurs."""
    number = {word: place for place, word in enumerate(names)}
    levels = np.fromiter(map(number.__getitem__, words), np.int64, len(words))
    return levels, np.bincount(levels, minlength=len(names))


def _numbers(texts: Iterable[str]) -> dict[str, float]:
    """Return the numbers that texts represent; empty if one is no number, or if there are fewer than three."""
    numbers = {}
    for text in texts:
        try:
            numbers[text] = float(text)
        except ValueError:
            return {}
    return numbers if len(set(numbers.values())) > 2 and all(map(isfinite, numbers.values())) else {}


def _cuts(numbers: NDArray[np.float64], having: Ints) -> Iterator[int]:
    """Yield the levels before which a number is cut: each one, or at quantiles of the runs."""
    below = np.cumsum(having)
    rising = np.flatnonzero(np.diff(numbers) > 0) + 1
    fair = rising[(below[rising - 1] >= MIN_HITS) & (below[-1] - below[rising - 1] >= MIN_HITS)]
    if fair.size > MAX_CUTS:
        shares = below[-1] * np.arange(1, MAX_CUTS + 1) / (MAX_CUTS + 1)
        fair = np.unique(fair[np.clip(np.searchsorted(below[fair - 1], shares), 0, fair.size - 1)])
    yield from fair.tolist()


def _first_of_each(dated: Iterable[tuple[int, str | None]]) -> list[int]:
    """Return the starts at which a commit runs for the first time; of many commits, those with most runs."""
    first: dict[str, int] = {}
    times = Counter[str]()
    for at, commit in sorted((at, commit) for at, commit in dated if commit is not None):
        first.setdefault(commit, at)
        times[commit] += 1
    return [first[commit] for commit, _ in times.most_common(MAX_COMMITS)]


def _borders(starts: NDArray[np.float64], commits: Sequence[int]) -> list[int]:
    """Return the starts before which a window may begin or end."""
    gaps = np.diff(starts)
    longest = np.argsort(-gaps, kind="stable")[:MAX_GAPS] + 1
    even = (len(starts) * np.arange(1, MAX_SHARES) // MAX_SHARES).astype(np.int64)
    return sorted({0, len(starts), *commits, *longest.tolist(), *even.tolist()})
