"""What the keys of a Megatron or DeepSpeed log mean: catalogue names, units, and what a missing loss says."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.numbers import Numbers, filled
from ckaudit.importers.text.line_reader import Fact, StepLines
from ckaudit.importers.text.log import Meaning

Mask = NDArray[np.bool_]
Columns = dict[str, Numbers]

_PLAIN = {
    "learning rate": "learning_rate",
    "grad norm": "grad_global_norm",
    "loss scale": "loss_scale",
    "consumed tokens": "tokens_seen",
    "number of skipped iterations": "skipped_updates",
    "number of nan iterations": "nan_inf_events",
    "load balancing loss": "moe_load_balance_loss",
    "moe loss": "moe_load_balance_loss",
}
_SECONDS = {"elapsed time per iteration (ms)": 1e-3, "elapsed time per iteration (s)": 1.0, "iter time (s)": 1.0}
_LOSSES = ("lm loss", "loss", "total loss", "reduced train loss")
_VALIDATION = ("validation lm loss", "validation loss", "validation total loss")
_USED = ("step", "total", "lr", "skipped", "consumed samples", "global batch size")
_TAKEN = frozenset({*_PLAIN, *_SECONDS, *_LOSSES, *_VALIDATION, *_USED})


def is_wanted(key: str) -> bool:
    """Tell whether a key gives, or helps to give, something of the catalogue."""
    return key in _TAKEN or catalogue_name(key) == "train_loss_raw"


def is_derived(key: str) -> bool:
    """Tell whether a key only repeats others in another form."""
    return key.endswith(" ppl") or key.startswith(("lr ", "samples "))


def meaning(rows: StepLines, mapped: Mapping[str, str], facts: Sequence[Fact]) -> Meaning:
    """Give the columns their names."""
    raw = rows.columns
    names = {key: name for key, name in _PLAIN.items() if key in raw and name not in mapped.values()} | dict(mapped)
    made = {name: raw[key] for key, name in names.items()}
    for key, factor in _SECONDS.items():
        if key in raw:
            made.setdefault("step_time", raw[key].times(factor))
    losses = {"train_loss_raw": _first(raw, _LOSSES), "val_loss": _first(raw, _VALIDATION)}
    made |= {name: raw[key] for name, key in losses.items() if key and name not in mapped.values()}
    notes = _counted(made, raw, facts)
    notes += _deepspeed(made, raw)
    notes += _without_loss(made, raw, losses["train_loss_raw"])
    notes += _not_computed(made)
    return Meaning(StepLines(rows.steps, rows.origin, made), notes)


def _first(raw: Columns, keys: Sequence[str]) -> str:
    """Return the first of the keys that is there, else one that a loss is commonly called."""
    known = next((key for key in keys if key in raw), "")
    return known or next((key for key in raw if catalogue_name(key) == "train_loss_raw" and keys is _LOSSES), "")


def _counted(columns: Columns, raw: Columns, facts: Sequence[Fact]) -> list[str]:
    """Count tokens, where samples are counted and the length of a sequence is known."""
    if "total" in raw:
        columns[".planned"] = raw["total"]
    samples, batch = raw.get("consumed samples"), raw.get("global batch size")
    length = _length(raw, facts)
    if samples is None or not length:
        return []
    columns[".sequence_length"] = Numbers(np.where(samples.recorded, length, np.nan), samples.recorded)
    if "tokens_seen" not in columns:
        columns["tokens_seen"] = samples.times(length)
    if batch is not None:
        columns["tokens_per_update"] = batch.times(length)
        if "step_time" in columns:
            passed = columns["step_time"]
            with np.errstate(divide="ignore", invalid="ignore"):
                speed = batch.values * length / passed.values
            columns["tokens_per_sec"] = Numbers(speed, batch.recorded & passed.recorded & np.isfinite(speed))
    return []


def _length(raw: Columns, facts: Sequence[Fact]) -> int:
    """Return the tokens of a sequence: those of each sample consumed where that is one number, else what the arguments say."""
    samples, tokens = raw.get("consumed samples"), raw.get("consumed tokens")
    if samples is not None and tokens is not None:
        known = samples.recorded & tokens.recorded & (samples.values > 0)
        lengths = np.unique(tokens.values[known] / samples.values[known])
        return int(lengths[0]) if len(lengths) == 1 and lengths[0] == int(lengths[0]) else 0
    told = {fact.value for fact in facts if fact.key == "argument seq_length"}
    return int(told.pop()) if len(told) == 1 and next(iter(told)).isdecimal() else 0


def _deepspeed(columns: Columns, raw: Columns) -> list[str]:
    """Fill in what DeepSpeed's own lines say: the learning rate, and updates skipped since the line before."""
    if "lr" in raw:
        own = columns.get("learning_rate")
        columns["learning_rate"] = raw["lr"] if own is None else filled(own, raw["lr"])
    if "skipped" not in raw:
        return []
    skipped = raw["skipped"]
    counts = np.diff(skipped.values[skipped.recorded], prepend=skipped.values[skipped.recorded][:1])
    values = np.full(len(skipped.values), np.nan)
    values[skipped.recorded] = np.maximum(counts, 0)
    own = columns.get("skipped_updates")
    if own is None or not own.values[own.recorded].any():
        columns["skipped_updates"] = Numbers(values, skipped.recorded)
        if own is not None:
            return ["skipped updates were taken from DeepSpeed's own lines: Megatron's count stays 0 under DeepSpeed"]
    return []


def _without_loss(columns: Columns, raw: Columns, key: str) -> list[str]:
    """Tell lines whose loss was NaN from lines of skipped updates; neither prints a loss."""
    trained = raw["learning rate"].recorded if "learning rate" in raw else None
    loss = columns.get("train_loss_raw")
    if trained is None or loss is None or not (absent := trained & ~loss.recorded).any():
        return []
    count = raw.get("number of skipped iterations")
    skipped = absent & (count.values > 0) if count is not None else np.zeros_like(absent)
    fell = absent & ~skipped & _fell(columns.get("loss_scale"), trained)
    broken = absent & ~skipped & ~fell
    columns["train_loss_raw"] = Numbers(loss.values, loss.recorded | broken)
    notes = []
    if fell.any() and "skipped_updates" in columns and "skipped" not in raw:
        own = columns["skipped_updates"]
        columns["skipped_updates"] = Numbers(np.where(fell, 1.0, own.values), own.recorded | fell)
    if (skipped | fell).any():
        repeated = _forget_repeated_norm(columns, skipped | fell, trained)
        notes.append(
            f"{int((skipped | fell).sum()):,} lines have no {key}, because the update was skipped: Megatron counted it, or the "
            f"loss scale fell; {repeated:,} of them print the gradient norm of the line before again: not recorded"
        )
    if broken.any():
        notes.append(
            f"{int(broken.sum()):,} lines have no {key} though no update was skipped: Megatron prints only a mean above zero, so "
            "it was NaN"
        )
    return notes


def _fell(scale: Numbers | None, trained: Mask) -> Mask:
    """Return the lines whose loss scale is below that of the training line before."""
    fell = np.zeros(len(trained), bool)
    if scale is not None:
        at = np.flatnonzero(trained & scale.recorded)
        fell[at[1:]] = np.diff(scale.values[at]) < 0
    return fell


def _forget_repeated_norm(columns: Columns, skipped: Mask, trained: Mask) -> int:
    """Forget norms of skipped updates that equal the norm before, and return how many there were."""
    norm = columns.get("grad_global_norm")
    if norm is None:
        return 0
    at = np.flatnonzero(trained & norm.recorded)
    same = np.zeros(len(skipped), bool)
    same[at[1:]] = np.diff(norm.values[at]) == 0
    columns["grad_global_norm"] = Numbers(norm.values, norm.recorded & ~(skipped & same))
    return int((skipped & same & norm.recorded).sum())


def _not_computed(columns: Columns) -> list[str]:
    norm = columns.get("grad_global_norm")
    if norm is None or norm.values[norm.recorded].any():
        return []
    del columns["grad_global_norm"]
    return ["the gradient norm is 0 in every line, which means that none was computed: not recorded"]
