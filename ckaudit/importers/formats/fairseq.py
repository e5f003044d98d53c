"""Log lines of fairseq and metaseq: a time, a level, a logger, one of `train_inner`, `train` and `valid`, and their numbers.

Numbers are in a JSON object or in text: `epoch 001:    450 / 1891 loss=11.5, ppl=1886.05, num_updates=445` within an epoch,
`epoch 001 | valid on 'valid' subset | loss 8.11 | ppl 118.06 | num_updates 600` after it.

`num_updates` counts optimizer updates. In JSON, numbers are written as strings. Losses are in bits, and `ppl` is 2 to their
power; losses are converted to nats here, unless `ppl` shows that the criterion logs nats. Where `nll_loss` is logged, `loss` is
label-smoothed, and `ppl` belongs to `nll_loss`, so `ppl` is left out. `train_inner` is the mean since the previous line, `train`
the mean over the epoch, `gnorm` the gradient norm before clipping, `clip` the percentage of updates that were clipped, `wps`
words per second.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from math import log
from time import strptime

import numpy as np
from msgspec import Struct

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import list_names
from ckaudit.importers.tables.curves import Curves, imported_run, steps_of
from ckaudit.importers.tables.field_map import SCALARS_ONLY, Mapped, Names, is_wanted, map_members
from ckaudit.importers.tables.jsonrows import JsonRows, read_rows
from ckaudit.importers.tables.numbers import Numbers, fill_missing, recorded_in_full
from ckaudit.importers.text.error_events import HEARTBEAT, NO_TIMES, error_events, error_rates, summary_of
from ckaudit.importers.text.error_lines import ErrorLine, error_lines

NAME = "fairseq log"
GENERIC = False

_TIME = rb"(?:(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)[^|\n]*\| *\w+ *\| *+)?"
_LINE = re.compile(rb"^" + _TIME + rb"(?:([\w.\-/]+) *\| *)?(\{.*\})[ \t\r]*$", re.MULTILINE)
_TEXT = re.compile(
    rb"^" + _TIME + rb"(?:([\w.\-/]{1,60}) *+)?\|? *+(epoch \d{1,9}(?:: *\d{1,12} / \d{1,12} | \| )[^\n]{1,2000})$", re.MULTILINE
)
_PAIR = re.compile(rb"(?:^|[\s,|])([a-z]\w{0,40})(?:=| )([-+.\deE]{1,30}|nan|inf)%?(?=[\s,|]|$)")
_SUBSET = re.compile(rb"\| (\w{1,40}) on '(\w{1,40})' subset")
_BITS = ("train_loss_raw", "val_loss")
_NAMES: Names = {
    "num_updates": Mapped("step"),
    "loss": Mapped("train_loss_raw"),
    "ppl": Mapped("train_ppl"),
    "lr": Mapped("learning_rate"),
    "gnorm": Mapped("grad_global_norm"),
    "clip": Mapped("grad_clip_rate", 0.01),
    "loss_scale": Mapped("loss_scale"),
    "wps": Mapped("tokens_per_sec"),
    "wpb": Mapped("tokens_per_update"),
    "cuda_gb_allocated": Mapped("gpu_mem_used", 2**30),
    **dict.fromkeys(("train_loss", "train_ppl", "train_wps", "valid_wps", "train_lr", "train_gnorm", "nll_loss"), Mapped("")),
}
_SILENT = ("epoch", "update", "bsz", "ups", "wall", "train_wall", "gb_free", "cuda_gb_free", "cuda_gb_reserved")
_UPDATES = "num_updates"
_OVERFLOW = re.compile(rb"gradient overflow detected[^\n]{0,40} loss scale to: (\d{1,12}(?:\.\d{1,12})?(?:e-?\d{1,3})?)")


class _Lines(Struct, frozen=True):
    """Lines that hold an object: time, logger name, object, line number in the file, and end offset of each."""

    times: list[bytes]
    tags: list[str]
    objects: list[bytes]
    places: list[int]
    ends: list[int]


def detects(source: Source) -> bool:
    """Tell whether a line has the number of updates beside words per second or an average of an epoch."""
    if b"num_updates" not in source.head:
        return False
    if any(b"num_updates" in match[3] and b"wpb" in match[3] for match in _TEXT.finditer(source.head)):
        return True
    marks = (b'"wps"', b'"wpb"', b'"train_wall"', b"_num_updates", b'"gnorm"')
    return any(b'num_updates"' in match[3] and any(mark in match[3] for mark in marks) for match in _LINE.finditer(source.head))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log.

    Raises:
        UnreadableError: Where nothing was logged.
        UsageError: Where `columns` names something that does not exist.
    """
    lines = _lines(source.data)
    if not lines.objects:
        raise UnreadableError(f"{source.shown} has no line of numbers", hint="Log with --log-format json.")
    sets = sorted({tag for tag in lines.tags if tag.startswith("valid")})
    names = {**_NAMES, **_of_sets(sets)}
    smoothed = any(b"nll_loss" in numbers for numbers in lines.objects)
    if smoothed:
        names |= {name: Mapped("") for name, meant in names.items() if meant.name in ("train_ppl", "val_ppl")}
    wanted = is_wanted(columns, names)
    rows = read_rows(b"\n".join(lines.objects), source.shown, lambda key: key.endswith(_UPDATES) or wanted(key))
    mapped = map_members(
        rows,
        columns,
        names,
        silent=[*_SILENT, *(key for key in rows.keys if key.endswith((_UPDATES, "_best_loss")) or key.startswith("train_"))],
    )
    series = {name: values for name, values in mapped.series.items() if name != "step"}
    notes = [*mapped.notes, *_to_nats(series)]
    steps, step_notes = steps_of(_updates(rows), [lines.places[line - 1] for line in rows.lines])
    if (times := _times([lines.times[line - 1] for line in rows.lines])) is not None:
        series["time"] = times
        notes.append("times were logged without their zone: read as UTC")
    step_notes.extend(
        ["means of whole epochs were left out: the log has those of its intervals"] if "train" in lines.tags else []
    )
    notes += _take_last_scale(series, source.data, lines.ends[-1])
    notes += _take_errors(series, error_lines(source.data), [lines.places[line - 1] for line in rows.lines])
    curves = Curves(steps, series, [*notes, *step_notes], mapped.layers)
    return [imported_run(curves, source.shown, NAME, size=rows.size_text, notes=rows.notes, last=SCALARS_ONLY)]


def _take_last_scale(series: dict[str, Numbers], data: bytes, end: int) -> list[str]:
    """Set the last loss scale to that of the overflows after the last line of numbers, and return a note on them."""
    scales = [float(match[1]) for match in _OVERFLOW.finditer(data, end)]
    known = series.get("loss_scale")
    if not scales or known is None:
        return []
    values, recorded = known.values.copy(), known.recorded.copy()
    values[-1], recorded[-1] = scales[-1], True
    series["loss_scale"] = Numbers(values, recorded)
    return [
        f"{len(scales)} gradients overflow behind the last line of numbers: the loss scale that they left is that of its step"
    ]


def _take_errors(series: dict[str, Numbers], seen: Sequence[ErrorLine], places: Sequence[int]) -> list[str]:
    """Add the rate of errors over the last day at each line, where the log has times, and return notes on the errors."""
    if not seen:
        return []
    clock = series["time"].values if "time" in series else None
    rates = error_rates(error_events(seen, places), len(places), clock)
    for kind, rate in rates.items():
        series["heartbeat_missing" if kind == HEARTBEAT else f"error_event_rate/{kind}"] = Numbers(rate, ~np.isnan(rate))
    return [f"errors: {summary_of(seen)}", *([NO_TIMES] if clock is None else [])]


def _lines(data: bytes) -> _Lines:
    """Return the lines of a log that hold numbers; text lines are converted to objects."""
    lines = _Lines([], [], [], [], [])
    for place, match in _numbered(data):
        is_text = not match[3].startswith(b"{")
        tag, numbers = _of_text(match) if is_text else ((match[2] or b"").decode(), match[3])
        lines.times.append(match[1] or b"")
        lines.tags.append(tag)
        lines.objects.append(numbers)
        lines.places.append(place)
        lines.ends.append(match.end())
    return lines


def _numbered(data: bytes) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Yield the line number and the match of each line with numbers: lines with objects if there are any, else text lines."""
    line, last = 1, 0
    matches = _LINE.finditer(data)
    for match in chain([first], matches) if (first := next(matches, None)) else _TEXT.finditer(data):
        line += data.count(b"\n", last, match.start())
        last = match.start()
        yield line, match


def _of_text(match: re.Match[bytes]) -> tuple[str, bytes]:
    """Return the name and the object that a text line would have as JSON."""
    text = match[3]
    subset = _SUBSET.search(text)
    within = "train_inner" if re.match(rb"epoch \d+:", text) else "train"
    tag = subset[2].decode() if subset else within
    prefix = "" if tag == "train_inner" else f"{tag}_"
    pairs = {name.decode().removeprefix(prefix): value.decode() for name, value in _PAIR.findall(text) if name != b"epoch"}
    return tag, json.dumps({f"{prefix}{name}": value for name, value in pairs.items()}).encode()


def _of_sets(sets: list[str]) -> dict[str, Mapped]:
    """Return the meaning of the members of validation sets: the set `valid` is the whole, other sets are slices."""
    names = {}
    for set_ in sets:
        names[f"{set_}_loss"] = Mapped("val_loss" if set_ == "valid" else f"slice_val_loss/{set_}")
        names[f"{set_}_ppl"] = Mapped("val_ppl" if set_ == "valid" else "")
    return names


def _updates(rows: JsonRows) -> Numbers:
    """Return the number of updates of each line, with any prefix."""
    numbers = rows.column(_UPDATES)
    for key in rows.columns:
        if key.endswith(f"_{_UPDATES}"):
            other = rows.columns[key]
            numbers = fill_missing(numbers, other)
    return numbers


def _to_nats(series: dict[str, Numbers]) -> list[str]:
    """Convert losses in bits to nats, in place, and return a note on it."""
    losses = [name for name in series if name in _BITS or name.startswith("slice_val_loss/")]
    if not losses:
        return []
    if _is_in_nats(series):
        return ["losses are in nats: ppl is e to their power"]
    for name in losses:
        series[name] = series[name].times(log(2))
    return [f"losses were logged in bits and are given in nats here: {list_names(losses)}"]


def _is_in_nats(series: Mapping[str, Numbers]) -> bool:
    """Tell whether ppl is closer to e to the power of the loss than to 2 to that power."""
    loss, ppl = series.get("train_loss_raw"), series.get("train_ppl")
    if loss is None or ppl is None:
        return False
    known = np.isfinite(loss.values) & np.isfinite(ppl.values) & (ppl.values > 1) & (loss.values > 0)
    if not known.any():
        return False
    rate = float(np.median(np.log(ppl.values[known]) / loss.values[known]))
    return abs(rate - 1) < abs(rate - log(2))


@cache
def _seconds(text: bytes) -> float | None:
    from calendar import timegm

    with suppress(ValueError):
        return float(timegm(strptime(text.decode().replace("T", " "), "%Y-%m-%d %H:%M:%S")))
    return None


def _times(texts: Sequence[bytes]) -> Numbers | None:
    """Return Unix times, or None where a line lacks its time."""
    seconds = [_seconds(text) for text in texts] if all(texts) else [None]
    return None if None in seconds else recorded_in_full(np.array(seconds, np.float64))
