"""Values in lines of text: pairs of a name and a number, their catalogue names, and columns with those names."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from ckaudit.contract.schema.loss_names import loss_part_of, may_be_adversarial
from ckaudit.contract.schema.score_names import EPISODE_RETURN
from ckaudit.importers.kinds_of_loss import may_be_a_cost, may_be_a_loss, may_tell_of_rollouts
from ckaudit.importers.names import catalogue_name, is_test_loss
from ckaudit.importers.tables.numbers import NOT_FINITE, Numbers, number
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.prefix import MAX_LINE

COUNT = r"(?:[1-9]\d{0,2}(?:,\d{3})++(?!,?\d)|\d++)"
"""A pattern for counts, which may have thousands separators."""

PAIR = re.compile(
    r"(?<![\w./-])([A-Za-z_](?:[\w/.@]|[-+](?=[A-Za-z]))*(?: [A-Za-z_][\w/.@]*){0,2})"
    r"(?:\s*(?:[:=]|=>|-{1,2}>)\s*|\s+|[ :=]{0,3}['\"], ?)"
    r"(?:\[?(?:(?:tf\.)?tensor|array|np\.float(?:16|32|64))\([\[ ]{0,4}|\[(?=[-+]?\d{1,20}\.\d{0,20}\]))?"
    rf"([-+]?(?:{NOT_FINITE}|(?:[1-9]\d{{0,2}}(?:,\d{{3}})+|\d+(?!,\d))(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+))"
    r"(?=([A-Za-z%]{0,9})(?:[\s,;|)\]}/]|$))",
    re.IGNORECASE,
)
SECONDS = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "sec": 1.0, "m": 60.0}
UNIT = re.compile(r"(.*?)(?: \[(.+)\])?")
CLOCKS = {f"train_time [{unit}]": SECONDS[unit] for unit in ("ms", "s", "m")}
OF_TEST = "test loss"
TEST = re.compile(r"(?<![A-Za-z])(?:test|testing)(?![A-Za-z])", re.IGNORECASE)
_SPEED = re.compile(r"s, {1,8}(\d{1,12}(?:\.\d{0,6})?)/s")  # after the time of a batch, as timm writes it
_MEAN_SO_FAR = re.compile(r" \( {0,4}(\d{1,12}\.\d{1,12})\)")  # as PyTorch's ImageNet example writes it
_FIRST_OF_CLASSES = ("prec@1", "acc@1")
_CURRENT = re.compile(r"(?<![A-Za-z])(cur|best) metric, ", re.IGNORECASE)
_OF_TRAINING = re.compile(r"(?<![a-z])(?:tr|trn|train|training)(?![a-z])")
_HELD_OUT = re.compile(r"(?<![A-Za-z])(?:val|valid|validation|eval|evaluation|dev)(?![A-Za-z])", re.IGNORECASE)
_LOOKS_BACK = re.compile(r"(?<![a-z])(?:best|lowest|highest|min|max|final|early|load|resum|restor|sav|improv)", re.IGNORECASE)
_WITH = re.compile(r"\A.* with (?:an? )?")  # as in `finished after 20 timesteps with reward -3.5`
_MEAN = re.compile(r"[ _](?:avg|average|mean|is)\Z|\A(?:avg|average|mean)\d{0,4}[ _]")
_OWN = {
    "train": "train_loss_raw",
    "val": "val_loss",
    "cost": "train_loss_raw",
    "train cost": "train_loss_raw",
    "training cost": "train_loss_raw",
    "validation cost": "val_loss",
    "hella": "microbench_score/hellaswag",
    "norm": "grad_global_norm",
    "gradnorm": "grad_global_norm",
    "gnorm": "grad_global_norm",
    "ce-mean-words": "val_loss",
    "mfu": "mfu",
    "dt": "step_time",
    "time": "step_time",
    "step_time": "step_time",
    "loss_scale": "loss_scale",
    "tok/s": "tokens_per_sec",
}
OF_MARKED_TEST = "loss of a test"
"""The key of a bare loss in a line that speaks of a test; "test" may also be the name of the run."""

_HELPERS = frozenset({"step", "iter", "total", OF_MARKED_TEST, *CLOCKS})
_BEHIND = re.compile(r" ?(s|sec|[a-z]{2,12}/s(?:ec)?|[GM]i?B)(?![\w/])")
_PER_SECOND = re.compile(r"(?:(?:train|timing|perf|global|speed)_)?(?:steps?|iters?|iterations?|it)_(?:per_)?(?:s|sec|second)")
Columns = dict[str, Numbers]


def with_unit(key: str, line: str, end: int) -> str:
    """Return a key with the unit that follows its number, if only both together show its meaning.

    >>> with_unit("ips", "ips: 120.8 samples/s,", 10), with_unit("loss", "loss: 120.8 s", 11)
    ('ips samples/s', 'loss')
    """
    unit = _BEHIND.match(line, end)
    full = f"{key} {unit[1]}" if unit else key
    return full if unit and name_of(key) is None and (name_of(full) or is_steps_per_second(full)) else key


@lru_cache(maxsize=4096)
def is_steps_per_second(key: str) -> bool:
    """Tell whether a key means steps per second.

    >>> is_steps_per_second("steps_per_sec"), is_steps_per_second("speed step/s"), is_steps_per_second("computation steps/s")
    (True, True, False)
    """
    return bool(_PER_SECOND.fullmatch(re.sub(r"[ /]", "_", key)))


def is_seconds_per_step(key: str) -> bool:
    """Tell whether a key says by itself that it is the seconds per step; `time` may be that of anything."""
    return key not in _OWN and name_of(key) == "step_time"


def may_hold_values_ahead(text: str) -> bool:
    """Tell whether values before a step or an epoch are of that step: those of the best one, or of a saved one, are not.

    >>> may_hold_values_ahead("loss: 2.31, "), may_hold_values_ahead("Best val_loss: 2.31 at ")
    (True, False)
    """
    return not _LOOKS_BACK.search(text)


@lru_cache(maxsize=4096)  # a log has few keys, which all its lines share
def name_of(key: str) -> str | None:
    """Return the catalogue name of a key, without its unit in brackets; None where the key is unknown.

    >>> name_of("val loss"), name_of("time [ms]"), name_of("lr_mul"), name_of("gpu_mem [gib]")
    ('val_loss', 'step_time', None, 'gpu_mem_used')
    """
    match = UNIT.fullmatch(key)
    bare = match[1] if match else key
    name = _OWN.get(bare) or catalogue_name(bare) or catalogue_name(key)
    return None if name in ("step", "time") else name


def is_wanted(key: str) -> bool:
    """Tell whether a key is a metric of the catalogue, or helps to compute one."""
    return (
        key in _HELPERS
        or name_of(key) is not None
        or is_test_loss(key)
        or loss_part_of(key) is not None
        or is_steps_per_second(key)
        or may_be_adversarial(key)
        or may_tell_of_rollouts(key)
        or may_be_of_a_loss(key)
    )


def may_be_of_a_loss(key: str) -> bool:
    """Tell whether a key without a common name may be the loss, or a term of it."""
    return may_be_a_cost(key) or may_be_a_loss(key)


def repeated_names(text: str, *, max_lines: int = 2000, min_lines: int = 3) -> list[str]:
    """Return the names that precede a number in several of the first lines, most frequent first."""
    lines = (line for line in text.splitlines()[:max_lines] if len(line) <= MAX_LINE)
    counts = Counter(name for line in lines for name in dict.fromkeys(pair[1] for pair in PAIR.finditer(line)))
    return [name.lower() for name, count in counts.most_common() if count >= min_lines and catalogue_name(name) != "step"]


def known_values(line: str, phase: str = "") -> dict[str, float]:
    """Return the numbers of a line with known names, by key; thousands separators are removed.

    >>> known_values("loss: 2.5 mood: 3"), known_values("loss: 2.5", phase="eval ")
    ({'loss': 2.5}, {'val loss': 2.5})
    """
    pairs = ((cell.key, number(line[cell.start : cell.end].replace(",", ""))) for cell in value_cells(line, phase=phase))
    return {key: value for key, value in pairs if value is not None and name_of(key)}


def has_training_loss(keys: Iterable[str]) -> bool:
    """Tell whether one of some keys is a training loss.

    >>> has_training_loss(["val loss"]), has_training_loss(["lr", "loss"])
    (False, True)
    """
    return any(name_of(key) == "train_loss_raw" for key in keys)


def has_reward(keys: Iterable[str]) -> bool:
    """Tell whether one of some keys is a return that says so: a line of a program may begin with `return 0`.

    >>> has_reward(["mean reward"]), has_reward(["average undiscounted return"]), has_reward(["return"]), has_reward(["loss"])
    (True, True, False, False)
    """
    return any(key != "return" and EPISODE_RETURN.search((name_of(key) or "").partition("/")[2]) is not None for key in keys)


def value_cells(line: str, begin: int = 0, phase: str = "") -> list[Cell]:
    """Return the values of a line by key: `loss` becomes "val loss" in a validation line and "test loss" in a test line.

    Args:
        line: The line.
        begin: Where its values begin.
        phase: The word for the evaluation that an earlier line announced; empty where none did.
    """
    cells: dict[str, Cell] = {}
    judged = _CURRENT.search(line)
    for pair in PAIR.finditer(line, begin):
        if line.startswith("%|", pair.end()):  # the position of a progress bar
            continue
        key, span = with_unit(_key_of(pair[1]), line, pair.end(2)), pair.span(2)
        if key == "time" and (speed := _SPEED.match(line, pair.end(2))):
            key = "seconds per step"
            cells.setdefault("samples per second", Cell("samples per second", *speed.span(1)))
        if key == "loss" or (key.endswith("loss") and name_of(key) == "train_loss_raw" and "train" not in key):
            before = phase + line[: pair.start()]
            key = OF_TEST if TEST.search(before) else "val loss" if _HELD_OUT.search(before) else key
            if key in (OF_TEST, "val loss"):
                span = _mean_so_far(line, pair)
        elif judged:  # as PaddleOCR reports an evaluation
            key = f"{'val' if judged[1].lower() == 'cur' else 'best'} {key}"
        elif key in _FIRST_OF_CLASSES and (word := _HELD_OUT.search(line[: pair.start()]) or TEST.search(line[: pair.start()])):
            key, span = f"{word[0].lower()} acc1", _mean_so_far(line, pair)
        cells.setdefault(key, Cell(key, *span))
    return list(cells.values())


def _mean_so_far(line: str, pair: re.Match[str]) -> tuple[int, int]:
    """Return the span of the mean over all batches so far, in brackets behind the value of one; without it, of that value."""
    mean = _MEAN_SO_FAR.match(line, pair.end(2))
    return mean.span(1) if mean else pair.span(2)


@lru_cache(maxsize=4096)  # a log has few keys, which its lines share
def _key_of(name: str) -> str:
    key = _WITH.sub("", name.lower())
    return key if name_of(key) else _MEAN.sub("", key)
