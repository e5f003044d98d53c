"""What a run was told, as trackers keep it: a configuration of any depth, from which few words always mean the same."""

from collections.abc import Mapping
from typing import Any

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.names import writable
from ckaudit.importers.tables.numbers import number, step_number

_OF_A_TRAINER = {"per_device_train_batch_size", "max_grad_norm", "max_steps"}  # only Hugging Face's arguments have all three
MAX_SETTINGS = 1000
MAX_DEPTH = 8
MAX_TEXT = 2000


def tell(manifest: Manifest, config: Mapping[str, Any]) -> None:
    """Put a configuration into a manifest, and what it says of the run as a whole."""
    kept = kept_settings(config)
    if not kept:
        return
    manifest.config = kept
    if (seed := step_number(number(config.get("seed")))) is not None:
        manifest.seed = seed
    if not set(config) >= _OF_A_TRAINER:
        return
    manifest.trainer = "huggingface"
    if planned := step_number(number(config["max_steps"])):
        manifest.planned_steps = planned
    if warmup := step_number(number(config.get("warmup_steps"))):
        manifest.warmup_steps = warmup
    if clip := _positive(config["max_grad_norm"]):
        manifest.clip_norm = clip
    if vocabulary := step_number(number(config.get("vocab_size"))):
        manifest.vocabulary = vocabulary


def kept_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that can be written: texts cut, nothing too deep, the first thousand."""
    first = list(config.items())[:MAX_SETTINGS]
    return {writable(str(name)): _kept(value, MAX_DEPTH) for name, value in first}


def _kept(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return (
            {writable(str(name)): _kept(each, depth - 1) for name, each in list(value.items())[:MAX_SETTINGS]} if depth else "..."
        )
    if isinstance(value, list | tuple):
        return [_kept(each, depth - 1) for each in value[:MAX_SETTINGS]] if depth else "..."
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return writable(str(value))[:MAX_TEXT]


def _positive(value: Any) -> float | None:
    read = number(value)
    return read if read is not None and 0 < read < float("inf") else None
