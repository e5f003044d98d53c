"""Hugging Face Trainer: `trainer_state.json`, the log history in each checkpoint.

`step` counts optimizer updates. An entry with `loss` holds the mean over the updates since the previous entry. `grad_norm` is
taken before clipping. `eval_loss` is one evaluation; where several sets are evaluated, `eval_<set>_loss` is the loss of one, and
the set named "all" is the whole. An entry with `train_runtime` sums up the whole training and belongs to no step.
"""

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.io.folder import shown_name
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.scalars import NAMES
from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import logs_rollouts, loss_kind_of_names
from ckaudit.importers.names import MEAN_REWARD, SLICE, catalogue_name, mean_reward, resolve_columns, slices_of, writable
from ckaudit.importers.notes_on_names import notes_on_left_out
from ckaudit.importers.tables.jsonrows import sample
from ckaudit.importers.tables.merge import merge, merge_notes
from ckaudit.importers.tables.numbers import number, step_number

NAME = "Hugging Face trainer_state.json"
GENERIC = False
FILE = "trainer_state.json"

_NAMES = {
    "loss": "train_loss_raw",
    "eval_loss": "val_loss",
    "eval_all_loss": "val_loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_global_norm",
    "num_input_tokens_seen": "tokens_seen",
    "num_tokens": "tokens_seen",
}
_LOSSES = ("train_loss_raw", "val_loss")
_SET_LOSS = re.compile(r"eval_(.+)_loss")
_SETTINGS = ("num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
_SUMMARY = "train_runtime"
NO_SERIES = re.compile(r"step|epoch|total_flos|.*_runtime|.*_per_second")

Entry = Mapping[str, Any]


def detects(source: Source) -> bool:
    """Tell whether the file has members that only a trainer's state has at the top level; copies of it have any file name."""
    if source.is_folder:
        return _state_in(source) is not None
    start = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith(b"{"):
        return False
    return b'"log_history"' in source.head or (b'"best_metric"' in source.head and not sample(source.head))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read a trainer's state; `columns` may name further members of its entries.

    Raises:
        UnreadableError: Where the state is truncated, or nothing was logged.
        UsageError: Where `columns` names a member that no entry has.
    """
    file = _state_in(source) or source
    shown = file.shown
    state = _state(file.document, shown)
    history = state.get("log_history")
    entries: list[Entry] = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    keys = list(dict.fromkeys(str(key) for entry in entries for key in entry))
    mapped = {keys[position]: name for name, position in resolve_columns(columns, keys).items()} if columns else {}
    losses = [value for entry in entries if (value := number(entry.get("loss"))) is not None]
    names = names_of_members(keys, mapped, losses)
    merged = merge(_values(entries, names))
    if not len(merged.table.steps):
        raise UnreadableError(f"{shown} logged no loss, learning rate or evaluation at any step", hint="See --logging_steps.")
    notes = [
        f"read as {NAME}: {len(entries):,} entries, steps {merged.table.steps[0]:,} to {merged.table.steps[-1]:,}",
        *_notes_on_state(file.path, state),
        *_notes_on_entries(entries, names),
        *merge_notes(merged),
        "a trainer's state holds scalars only: gradients, activations and attention of single tensors were not recorded",
    ]
    return [Imported(merged.table, _manifest(state, merged.table, keys), tuple(notes), NAME)]


def _state_in(source: Source) -> Source | None:
    """Return the trainer state in a folder, else that of its latest checkpoint, else None."""
    if not source.is_folder:
        return None
    folders = (path.name for path in source.path.glob("checkpoint-*") if (path / FILE).is_file())
    names = [FILE, *(f"{name}/{FILE}" for name in sorted(folders, key=_checkpoint, reverse=True))]
    return next((file for name in names if (file := source.inside(name)) is not None), None)


def _checkpoint(name: str) -> tuple[int, str]:
    number = name.removeprefix("checkpoint-")
    return (int(number) if number.isdecimal() else -1, number)


def _state(data: bytes, shown: str) -> dict[str, Any]:
    try:
        text = data.decode("utf-8-sig")
        state = json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        what = "ends in the middle, so it was only half written" if cut else f"is not JSON: {error.msg}"
        raise UnreadableError(
            f"{shown} {what} (line {error.lineno:,}, column {error.colno:,})", hint="Take the state of the checkpoint before it."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{shown} is not JSON that can be read: {error}", hint="Fetch the file again.") from None
    return state if isinstance(state, dict) else {}


def _values(entries: Iterable[Entry], names: Mapping[str, str]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the step and the values of each entry that has both."""
    place = next((key for key, name in names.items() if name == "step"), "step")
    for entry in entries:
        step = step_number(number(entry.get(place)))
        if step is None or _SUMMARY in entry:
            continue
        values = {name: value for key, name in members_by_name(entry, names) if (value := number(entry[key])) is not None}
        if values:
            yield step, values


def names_of_members(keys: Iterable[str], mapped: Mapping[str, str], losses: Iterable[float]) -> dict[str, str]:
    """Return catalogue names by key: the trainer's own names and those that the user gave.

    Args:
        keys: All logged keys.
        mapped: Catalogue name of each key that the user named.
        losses: The training losses. They are left out where a policy's rollouts are logged beside them and all are finite.
    """
    names = {key: name for key, name in _NAMES.items() if name not in mapped.values()} | dict(mapped)
    keys = list(keys)
    if not logs_rollouts(keys):
        return names
    if all(map(math.isfinite, losses)):
        names = {key: name for key, name in names.items() if key in mapped or name not in _LOSSES}
    reward = mean_reward(keys)
    return names if reward is None else {keys[reward]: MEAN_REWARD} | names


def members_by_name(entry: Iterable[str], names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield key and catalogue name; beside `eval_loss`, further evaluation losses are parts of it and not those of a set."""
    for key in entry:
        if key in names:
            if names[key] != "step":
                yield key, names[key]
        elif (own := _of_the_catalogue(key)) and own not in names.values():
            yield key, own
        elif "eval_loss" not in entry and (match := _SET_LOSS.fullmatch(key)):
            yield key, f"slice_val_loss/{writable(match[1])}"


def _of_the_catalogue(key: str) -> str:
    """Return the catalogue name of a key that a program logged beside the trainer's own; empty: the catalogue has none."""
    if key.partition("/")[0] in NAMES:
        return key
    name = catalogue_name(key) or ""
    is_known = name.startswith("microbench_score/") or name.removeprefix("loss_").removeprefix(SLICE) in ("regular", "irregular")
    return name if is_known else ""


def _manifest(state: Mapping[str, Any], table: LineTable, keys: Iterable[str]) -> Manifest:
    manifest = Manifest(schema_version="ck.run.v1", source=NAME, loss_kind=loss_kind_of_names(keys) or UNSET)
    if planned := _planned(state):
        manifest.planned_steps = planned
    config: dict[str, Any] = {
        name: state[name] for name in _SETTINGS if isinstance(state.get(name), int | float) and state[name] < sys.maxsize
    }
    if best := _best_metric(state):
        config["metric_for_best_model"] = best
    if config:
        manifest.config = config
    if slices := slices_of(table.names):
        manifest.slices = slices
    return manifest


def _best_metric(state: Mapping[str, Any]) -> str:
    """Return the name of the metric that selected the best model: the evaluation metric that reaches the best value."""
    best, history = number(state.get("best_metric")), state.get("log_history")
    entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    named = (key for entry in entries for key in entry if key.startswith("eval_") and number(entry[key]) == best)
    return "" if best is None else next(named, "eval_loss")


def _planned(state: Mapping[str, Any]) -> int | None:
    steps = step_number(number(state.get("max_steps")))
    return steps or None


def _notes_on_state(path: Path, state: Mapping[str, Any]) -> list[str]:
    done, planned = step_number(number(state.get("global_step"))), _planned(state)
    if done is None or planned is None or done >= planned:
        return []
    notes = [
        f"the state is that of step {done:,} of {planned:,} planned: the run was cut off there, or this is a copy on its way"
    ]
    if path.parent.name.startswith("checkpoint-") and (path.parent.parent / path.name).is_file():
        notes.append(f"a later {shown_name(path.name)} lies beside the checkpoint's folder")
    return notes


def _notes_on_entries(entries: list[Entry], names: Mapping[str, str]) -> list[str]:
    placeless = [entry for entry in entries if step_number(number(entry.get("step"))) is None]
    lossless = [entry for entry in entries if any(key.startswith("eval_") for key in entry) and not any(map(_is_loss, entry))]
    logged = dict.fromkeys(key for entry in entries if _SUMMARY not in entry for key in entry)
    left = [key for key in logged if not (key in names or _is_loss(key) or _of_the_catalogue(key) or NO_SERIES.fullmatch(key))]
    notes = []
    if placeless:
        notes.append(f"{len(placeless):,} entries without a step were left out, such as predictions made after training")
    if lossless:
        notes.append(f"{len(lossless):,} evaluations recorded no loss")
    if any(_SUMMARY in entry for entry in entries):
        notes.append("the summary at the end, with the mean loss of the whole training, belongs to no step and was left out")
    return [*notes, *notes_on_left_out(left), *_hidden_nan(entries)]


def _is_loss(key: str) -> bool:
    return key == "eval_loss" or _SET_LOSS.fullmatch(key) is not None


def _hidden_nan(entries: Iterable[Entry]) -> list[str]:
    """Return a note where the trainer's filter hid a NaN: it logs the mean so far instead, or 0.0 where all losses were NaN."""
    zero = [entry for entry in entries if number(entry.get("loss")) == 0 and _is_nan(entry.get("grad_norm"))]
    hidden = [step for entry in zero if (step := step_number(number(entry.get("step")))) is not None]
    if not hidden:
        return []
    note = (
        f"{len(hidden):,} entries log a loss of exactly 0 beside a gradient norm of NaN, first at step {hidden[0]:,}: the loss "
        "was NaN too, and logging_nan_inf_filter replaced it; the values were kept as logged"
    )
    return [note]


def _is_nan(value: Any) -> bool:
    """Tell whether a value is NaN, as a number or as a word."""
    parsed = number(value)
    return parsed is not None and math.isnan(parsed)
