"""The short way of a plain step: nothing due, nothing asked for, all numbers finite and in this process's memory.

A step of a training leaves none of the recorder's code in the processor's caches, where every function called costs some
microseconds. Most steps are plain, so they go through one function. What is not plain goes the long way; both write the same.
"""

from math import hypot, isfinite
from typing import Any

import torch
from torch import Tensor

from ckaudit.recorder.attempt import Attempt
from ckaudit.recorder.digits import shorten
from ckaudit.recorder.fingerprint import fingerprint, name_of
from ckaudit.recorder.folder import RunFolder
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.memory import Memory
from ckaudit.recorder.unread import Unread


def finish_plain(
    attempt: Attempt, loss: Any, inputs: Any, batch_id: str | int | None, folder: RunFolder, memory: Memory, guard: Guard
) -> bool:
    """Write the line of a step and remember it, if it is plain; tell whether it was. Otherwise nothing has been done.

    Args:
        attempt: The step, with no checkpoint and no vital signs, of a training without a loss scaler.
        loss: As the training gave it.
        inputs: The inputs of its batch; None where they are not known.
        batch_id: The loader's own name of it.
        folder: Where the line goes.
        memory: Keeps the step.
        guard: Keeps a disk that fails away from the rest.
    """
    unread = attempt.unread
    if unread is None or not attempt.rates or not attempt.updates or folder.is_busy:
        return False
    if not _is_number(loss) or not _are_here(unread) or not (inputs is None or _are_tokens(inputs)):
        return False
    total: Any = None if inputs is None else fingerprint(inputs)
    numbers = unread.norms.pieces.tolist()  # type: ignore[union-attr]
    value, norm = loss.item(), hypot(*numbers)
    if not (isfinite(norm) and isfinite(value)):
        return False
    value, norm = shorten(value), shorten(norm)
    if not memory.stays_calm(value, norm, min(numbers)):
        return False
    # From here on nothing turns back.
    attempt.loss, attempt.global_norm, attempt.unread = value, norm, None
    attempt.input_hash = None if total is None else name_of(total.item(), inputs.shape)
    attempt.norms = dict(zip(unread.names, numbers, strict=True))
    attempt.values = _known(attempt, batch_id, folder) | attempt.values
    memory.keep(attempt)
    with guard("writing scalars.jsonl"):
        folder.append(attempt.step, attempt.time, attempt.values)
    return True


def _known(attempt: Attempt, batch_id: str | int | None, folder: RunFolder) -> dict[str, Any]:
    known: dict[str, Any] = {"train_loss_raw": attempt.loss, "grad_global_norm": attempt.global_norm}
    if attempt.input_hash is not None:
        known["batch_hash"] = attempt.input_hash
        if (ago := folder.batches.see(attempt.step, attempt.input_hash)) is not None:
            known["batch_repeat_distance"] = ago
    folder.steps_seen += 1
    known["learning_rate"], known["steps_seen"] = attempt.rates[0], folder.steps_seen
    if batch_id is not None:
        known["batch_id"] = batch_id
    return known


def _is_number(loss: Any) -> bool:
    return type(loss) is Tensor and loss.dtype == torch.float32 and loss.is_cpu and loss.numel() == 1


def _are_here(unread: Unread) -> bool:
    norms = unread.norms
    return norms is not None and norms.owners is None and norms.pieces.is_cpu and unread.scale == 1.0


def _are_tokens(inputs: Any) -> bool:
    return type(inputs) is Tensor and inputs.dtype == torch.int64 and inputs.is_cpu and inputs.layout == torch.strided
