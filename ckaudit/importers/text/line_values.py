"""What lines of text say by name: pairs of a name and a number, what the catalogue calls them, and columns under those names."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ckaudit.contract.schema.loss_names import loss_part_of
from ckaudit.importers.kinds_of_loss import adversarial_losses, loss_parts
from ckaudit.importers.names import catalogue_name, is_test_loss, shorten_name, test_loss_of
from ckaudit.importers.tables.curves import take_sum
from ckaudit.importers.tables.numbers import Numbers, fill_missing
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.line_reader import StepLines
from ckaudit.importers.text.log import NamedLines

PAIR = re.compile(
    r"(?<![\w./-])([A-Za-z_][\w/.@]*(?: [A-Za-z_][\w/.@]*){0,2})(?:\s*[:=]\s*|\s+)"
    r"(?:(?:tensor|array|np\.float(?:16|32|64))\([\[ ]{0,4})?"
    r"([-+]?(?:nan|inf|(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+))(?=([A-Za-z%]{0,9})(?:[\s,;|)\]}/]|$))",
    re.IGNORECASE,
)
SECONDS = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "sec": 1.0, "m": 60.0}
UNIT = re.compile(r"(.*?)(?: \[(.+)\])?")
CLOCKS = {f"train_time [{unit}]": SECONDS[unit] for unit in ("ms", "s", "m")}
OF_TEST = "test loss"
TEST = re.compile(r"(?<![A-Za-z])(?:test|testing)(?![A-Za-z])", re.IGNORECASE)
_HELD_OUT = re.compile(r"(?<![A-Za-z])(?:val|valid|validation|eval|evaluation|dev)(?![A-Za-z])", re.IGNORECASE)
_MEAN = re.compile(r"[ _](?:avg|average|mean|is)\Z|\A(?:avg|average|mean)[ _]")
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
    "mfu": "mfu",
    "dt": "step_time",
    "time": "step_time",
    "step_time": "step_time",
    "loss_scale": "loss_scale",
    "tok/s": "tokens_per_sec",
}
_HELPERS = frozenset({"step", "iter", "total", *CLOCKS})
Columns = dict[str, Numbers]


@lru_cache(maxsize=4096)  # a log has few keys, and each of its lines has them
def name_of(key: str) -> str | None:
    """Return what the catalogue calls a key, its unit in brackets left off; None where nothing is known.

    >>> name_of("val loss"), name_of("time [ms]"), name_of("lr_mul")
    ('val_loss', 'step_time', None)
    """
    match = UNIT.fullmatch(key)
    bare = match[1] if match else key
    name = _OWN.get(bare) or catalogue_name(bare)
    return None if name in ("step", "time") else name


def is_wanted(key: str) -> bool:
    """Tell whether a key is, or helps to compute, a metric of the catalogue."""
    return key in _HELPERS or name_of(key) is not None or is_test_loss(key) or loss_part_of(key) is not None


def named_lines(rows: StepLines, mapped: Mapping[str, str], notes: Sequence[str]) -> NamedLines:
    """Give the columns of a log without units and clocks their names.

    Args:
        rows: The lines, their columns by key.
        mapped: Catalogue name of each key that the user named.
        notes: What was done to get the lines.
    """
    columns: Columns = {}
    taken = []
    parts = {key: name for name, key in parts_of(rows.columns).items() if name not in mapped.values()}
    mapped = {**parts, **with_test_loss(rows.columns, mapped)}
    for key, column in rows.columns.items():
        name = mapped.get(key) or name_of(key)
        if name and name not in ("step", "time", "step_time"):
            columns[name] = fill_missing(columns[name], column) if name in columns else column
            taken.append(f"{name} from {shorten_name(key)}")
    told = [f"taken: {', '.join(taken)}"] if taken else []
    keys = list(rows.columns)
    used = tuple(parts)
    if "train_loss_raw" not in columns and (against := adversarial_losses(keys)) is not None:
        pair = keys[against.generator], keys[against.discriminator]
        told += take_sum(columns, pair, [rows.columns[key] for key in pair])
        used += pair
    return NamedLines(StepLines(rows.steps, rows.origin, columns), [*told, *notes], used)


def parts_of(columns: Columns) -> dict[str, str]:
    """Return the keys of terms of the loss that are taken beside it, by catalogue name."""
    keys = list(columns)
    return {name: keys[position] for name, position in loss_parts(keys).items()}


def with_test_loss(columns: Columns, mapped: Mapping[str, str]) -> Mapping[str, str]:
    """Return what the user mapped, and the loss on a test set as the held-out one where there is no other."""
    keys = list(columns)
    tested = None if "val_loss" in mapped.values() else test_loss_of(keys)
    return mapped if tested is None else {keys[tested]: "val_loss", **mapped}


def value_cells(line: str, begin: int = 0, phase: str = "") -> list[Cell]:
    """Return the values of a line by key: `loss` in a line on validation is "val loss", in one on a test "test loss".

    Args:
        line: The line.
        begin: Where its values begin.
        phase: The word of the evaluation that an earlier line began, empty where none did.
    """
    cells: dict[str, Cell] = {}
    for pair in PAIR.finditer(line, begin):
        if line.startswith("%|", pair.end()):  # how far a progress bar is
            continue
        key = _key_of(pair[1])
        if key == "loss" or (key.endswith("loss") and name_of(key) == "train_loss_raw" and "train" not in key):
            before = phase + line[: pair.start()]
            key = OF_TEST if TEST.search(before) else "val loss" if _HELD_OUT.search(before) else key
        cells.setdefault(key, Cell(key, *pair.span(2)))
    return list(cells.values())


@lru_cache(maxsize=4096)  # a log has few keys; its lines share them
def _key_of(name: str) -> str:
    key = name.lower()
    return key if name_of(key) else _MEAN.sub("", key)
