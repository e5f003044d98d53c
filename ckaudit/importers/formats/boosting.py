"""Rounds of boosting: the lines that XGBoost, LightGBM and CatBoost print while they train.

    [12]    train-logloss:0.41    eval-logloss:0.44
    [12]    training's binary_logloss: 0.4    valid_0's binary_logloss: 0.45
    12:     learn: 0.5    test: 0.52    best: 0.52 (12)    total: 110ms    remaining: 9s

A round is a step; where rounds count from 0, round N is step N + 1. The loss is the first error measure that training and
held-out data share; scores of held-out data are read as scores. Of several held-out sets the last counts, as it does in
XGBoost's early stopping. CatBoost does not name its measure: where the best is the largest so far, the measure is a score. The
line of the best round, which is printed again at the end, is ignored.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names, shorten_name
from ckaudit.importers.tables.numbers import Numbers, number
from ckaudit.importers.text.assemble_runs import TextRun
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.log import Format, NamedLines, is_text, parsed_dialect, read_scanned
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "rounds of boosting"
GENERIC = False
HEAD_BYTES = 2**21
MIN_ROUNDS = 3
_VALUE = r"([-+]?(?:nan|inf|\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?))"
_OF_TWO_WORDS = r"(?:gamma|poisson|cox|aft|tweedie)-(?:nloglik|deviance)"
_ROUND = re.compile(r"(?<!\S)(?:\[(\d{1,9})\]\s{1,8}(?=\S)|(\d{1,9}):\s{1,8}(?=(?:learn|test): ))")
_XGBOOST = re.compile(
    rf"(?<!\S)([A-Za-z_][\w.-]{{0,60}}?)-({_OF_TWO_WORDS}(?:@[\d.]{{1,8}})?|[A-Za-z]\w{{0,40}}(?:@[\d.]{{1,8}}-?)?):{_VALUE}(?:\+\S{{1,24}})?(?!\S)",
    re.IGNORECASE,
)
_LIGHTGBM = re.compile(
    rf"(?<!\S)([A-Za-z][\w.-]{{0,60}})'s (?:(train|valid) )?([A-Za-z][\w@.-]{{0,40}}): {_VALUE}(?: \+ \S{{1,24}})?(?!\S)",
    re.IGNORECASE,
)
_CATBOOST = re.compile(rf"(?<!\S)(learn|test|best): {_VALUE}(?!\S)", re.IGNORECASE)
_IS_REPEATED = re.compile(r"best iteration(?: is)?:?\s*\Z", re.IGNORECASE)
_TRAINING = frozenset({"train", "training", "trn", "learn", "dtrain", "train_set"})
_ERRORS = frozenset(
    """
    rmse rmsle mae mape mphe mse logloss error merror mlogloss nloglik deviance binary_logloss multi_logloss binary_error
    multi_error l1 l2 mean_absolute_error mean_squared_error root_mean_squared_error huber fair poisson gamma gamma_deviance
    tweedie quantile cross_entropy xentropy cross_entropy_lambda kullback_leibler kldiv
    """.split()  # noqa: SIM905  one word a line would take five times the room
)
_SCORES = frozenset("auc aucpr auc_mu ndcg map pre average_precision accuracy acc f1 f1_score r2 precision recall".split())  # noqa: SIM905
_UNNAMED, _BEST = "", "best"


class _Series(Struct, frozen=True):
    """What one number of a line is.

    Attributes:
        key: The key that notes show.
        data: The name of the data.
        measure: The name of the measure in lower case; empty: the line does not say.
    """

    key: str
    data: str
    measure: str

    @property
    def is_training(self) -> bool:
        return self.data.lower() in _TRAINING

    @property
    def kind(self) -> str:
        """Whether the measure is an "error" or a "score"; empty: unknown."""
        bare = self.measure.partition("@")[0].rpartition("-")[2]
        return "error" if bare in _ERRORS else "score" if bare in _SCORES else ""


def detects(source: Source) -> bool:
    """Tell whether the text has several rounds, each with a measure."""
    if not is_text(source):
        return False
    return len({place for _, place, _ in _lines(source.data[:HEAD_BYTES], {})}) >= MIN_ROUNDS


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the rounds.

    Raises:
        UnreadableError: Where no measure is an error or a score.
        UsageError: Where `columns` names a key that no line holds.
    """
    series: dict[str, _Series] = {}
    rows = step_lines(_lines(source.data, series))
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], [])

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return _named(rows, mapped, list(series.values()))

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, lambda _: True), meaning, _manifest))


def _manifest(manifest: Manifest, *_: Sequence[RunFact] | TextRun) -> list[str]:
    manifest.loss_kind = "other"
    return []


def _lines(data: bytes, series: dict[str, _Series]) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the line number, the round and the values of each round's line, and add what the values are to `series`."""
    repeated = False
    for line_number, line in numbered_lines(data):
        place = _ROUND.search(line, 0, 200) if len(line) <= MAX_LINE else None
        if place is not None and not repeated and (values := dict(_values(line, place, series))):
            yield line_number, int(place[1] or place[2]), values
        repeated = bool(_IS_REPEATED.search(line, max(len(line) - 100, 0)))


def _values(line: str, place: "re.Match[str]", series: dict[str, _Series]) -> Iterator[tuple[str, float]]:
    for curve, text in _unnamed_pairs(line, place) if place[2] else _named_pairs(line, place.end()):
        if (value := number(text)) is not None:
            series.setdefault(curve.key, curve)
            yield curve.key, value


def _unnamed_pairs(line: str, place: "re.Match[str]") -> Iterator[tuple[_Series, str]]:
    for match in _CATBOOST.finditer(line, place.end()):
        yield _Series(match[1], match[1], _UNNAMED), match[2]


def _named_pairs(line: str, begin: int) -> Iterator[tuple[_Series, str]]:
    for match in _XGBOOST.finditer(line, begin):
        yield _Series(f"{match[1]}-{match[2]}", match[1], match[2].lower()), match[3]
    for match in _LIGHTGBM.finditer(line, begin):
        data = match[2] or match[1]
        yield _Series(f"{data}-{match[3]}", data, match[3].lower()), match[4]


def _named(rows: StepLines, mapped: Mapping[str, str], series: Sequence[_Series]) -> NamedLines:
    """Give the columns their catalogue names, and count rounds from 1."""
    unnamed = {curve.key: rows.columns[curve.key] for curve in series if curve.measure == _UNNAMED}
    kinds = {curve.key: _kind_of_unnamed(unnamed) if curve.measure == _UNNAMED else curve.kind for curve in series}
    names = dict(mapped)
    for name, key in _choose([curve for curve in series if curve.key not in names and curve.key != _BEST], kinds).items():
        if name not in names.values():
            names[key] = name
    columns = {name: rows.columns[key] for key, name in names.items()}
    notes = [f"taken: {', '.join(f'{name} from {shorten_name(key)}' for key, name in names.items())}"] if names else []
    if left := [curve.key for curve in series if curve.key not in names and curve.key != _BEST]:
        notes.append(f"left out: {list_names(left)}; --map NAME=KEY takes one")
    notes += ["total and remaining time were left out"] if unnamed else []
    from_zero = bool(len(rows.steps)) and int(rows.steps.min()) == 0
    notes.append("a step is a round" + (", and rounds count from 0: N was taken as step N + 1" if from_zero else ""))
    return NamedLines(StepLines(rows.steps + from_zero, rows.origin, columns), notes)


def _choose(series: Sequence[_Series], kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the key for each catalogue name: one error measure for training and held-out data, and held-out scores."""
    errors = [curve for curve in series if kinds[curve.key] == "error"]
    trained = {error.measure: error.key for error in reversed(errors) if error.is_training}
    held_out = {error.measure: error.key for error in errors if not error.is_training}
    shared = [error.measure for error in errors if error.measure in trained and error.measure in held_out]
    measure = next(iter([*shared, *(error.measure for error in errors)]), None)
    chosen = {"train_loss_raw": trained.get(measure or ""), "val_loss": held_out.get(measure or "")}
    taken = {name: key for name, key in chosen.items() if key is not None}
    for curve in series:
        if kinds[curve.key] == "score" and not curve.is_training:
            taken[f"microbench_score/{curve.data}_{curve.measure or 'score'}"] = curve.key
    return taken


def _kind_of_unnamed(columns: Mapping[str, Numbers]) -> str:
    """Return whether the measure that no line names is an error or a score: from the best so far, else from the training curve.

    Without held-out data, a measure that falls in training is an error; one that does not fall may be either.
    """
    if {"test", _BEST} <= columns.keys():
        both = columns["test"].recorded & columns[_BEST].recorded
        behind = (columns["test"].values - columns[_BEST].values)[both]
        if len(behind) and (behind > 0).any() != (behind < 0).any():
            return "error" if (behind > 0).any() else "score"
        course = columns[_BEST].values[columns[_BEST].recorded]
    else:
        course = columns["learn"].values[columns["learn"].recorded] if "learn" in columns else np.empty(0)
    if len(course) > 1 and course[-1] < course[0]:
        return "error"
    return "score" if len(course) > 1 and course[-1] > course[0] and _BEST in columns else ""
