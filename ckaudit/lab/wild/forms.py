"""The forms in which others would have recorded a training: our full recording, the contract as printed, or a log."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from ckaudit.contract.io.files import CHECKPOINT_NAME, read_bytes
from ckaudit.contract.io.grids import unpack
from ckaudit.contract.schema.checkpoint import PackedGrid
from ckaudit.lab.score.verdict import write_table

Form = Literal["recorder", "contract", "log"]
FORMS: Sequence[Form] = get_args(Form)

# The fields that the mission's contract prints, and nothing else.
DOCUMENT = ("schema_version", "step", "loss")
PRINTED: Mapping[str, Sequence[str]] = {
    "weights": ("mean", "std", "min", "max", "percentiles", "histogram", "sampled_grid_32x32"),
    "gradients": ("norm", "histogram"),
    "activations": ("mean", "std", "sparsity"),
    "attention": ("entropy_per_head", "max_attn_per_head", "sampled_qk_grid_32x32_per_head"),
}


def as_form(run: Path, form: Form, folder: Path) -> Path:
    """Return a recording in another form.

    Args:
        run: A run folder of our recorder.
        form: The form.
        folder: Folder for the result; nothing is written for the original form.
    """
    if form == "recorder":
        return run
    folder.mkdir(parents=True, exist_ok=True)
    if form == "log":
        write_table(run, folder / "log.csv")
        return folder / "log.csv"
    for file in sorted(file for file in run.iterdir() if CHECKPOINT_NAME.match(file.name)):
        document = json.loads(read_bytes(file, file.name))
        if "event_step" in document or document["step"] == 0:
            continue  # a writer that follows the printed contract only has its cadence
        (folder / file.name.split(".json")[0]).with_suffix(".json").write_text(json.dumps(as_printed(document)), encoding="utf-8")
    return folder


def as_printed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return only those fields of a checkpoint that the mission's contract prints, in the printed form."""
    printed = {name: document[name] for name in DOCUMENT if name in document}
    for section, names in PRINTED.items():
        if section in document:
            printed[section] = {
                place: {name: _plain(fields[name]) for name in names if name in fields}
                for place, fields in document[section].items()
                if any(name in fields for name in names)
            }
    return printed


def _plain(value: Any) -> Any:
    """Return bins as a list of edges, and packed grids as nested numbers."""
    if isinstance(value, Mapping) and "encoding" in value:
        return unpack(msgspec.convert(value, PackedGrid)).tolist()
    if isinstance(value, Mapping) and isinstance(value.get("bins"), Mapping):
        low, high = (float(end) for end in value["bins"]["range"])
        return dict(value) | {"bins": np.linspace(low, high, value["bins"]["count"] + 1).tolist()}
    return value
