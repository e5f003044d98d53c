"""The short way of a plain step: nothing due, nothing asked for, all numbers finite and in this process's memory.

A step of a training leaves none of the recorder's code in the processor's caches, where every function called costs some
microseconds. Most steps are plain, so they go through one function. What is not plain goes the long way; both write the same.
"""

from collections.abc import Mapping
from math import hypot, isfinite
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from ckaudit.contract.schema.analysis import GradientsSource
from ckaudit.recorder.batches import name_of_tokens, pair
from ckaudit.recorder.files.run_folder import RunFolder
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.event_log import EventLog
from ckaudit.recorder.loop.flight_recorder import HistoryStep
from ckaudit.recorder.loop.pending_stats import PendingStats
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.model.gradient_norms import FULL, LONG, alike, are_here
from ckaudit.recorder.stats.float32_rounding import in_seven, shorten


class PlainGradients:
    """The short way to the norms of a plain step: every gradient where PyTorch keeps it, of one full precision, none too long."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._names, self._parameters = [*parameters], [*parameters.values()]
        self._dtype, longest = alike(self._parameters)
        self.is_usable = self._dtype in FULL and longest <= LONG and are_here(self._parameters)

    def read(self, attempt: StepState, source: GradientsSource) -> bool:
        """Take the norm of every gradient, and tell whether that could be done; otherwise nothing has been done.

        Args:
            attempt: The step under way.
            source: Where in the step this is.
        """
        start = perf_counter()
        gradients = [parameter.grad for parameter in self._parameters if parameter.requires_grad]
        if len(gradients) < len(self._names):
            return False
        try:
            norms = torch._foreach_norm(gradients, 2)  # type: ignore[arg-type]  # noqa: SLF001
        except (NotImplementedError, RuntimeError, TypeError):  # sparse, of several devices, or one is missing
            return False
        if norms[0].dtype != self._dtype or not norms[0].is_cpu:
            return False
        by_name = dict(zip(self._names, [norm.item() for norm in norms], strict=True))
        attempt.source, attempt.unread = source, PendingStats(self._names, at_hand=by_name)
        attempt.seconds += perf_counter() - start
        return True


def finish_plain(
    attempt: StepState, loss: Any, batch: Any, batch_id: str | int | None, folder: RunFolder, memory: EventLog, guard: Guard
) -> bool:
    """Write the line of a step and remember it, if it is plain; tell whether it was. Otherwise nothing has been done.

    Args:
        attempt: The step, with no checkpoint and no vital signs, of a training without a loss scaler.
        loss: As the training gave it.
        batch: Its batch.
        batch_id: The loader's own name of it.
        folder: Where the line goes.
        memory: Keeps the step.
        guard: Keeps a disk that fails away from the rest.
    """
    unread = attempt.unread
    if unread is None or unread.at_hand is None or not attempt.rates or not attempt.updates or folder.is_busy:
        return False
    inputs = batch[0] if type(batch) is tuple and batch else pair(batch)[0]
    if unread.scale != 1.0 or not _is_number(loss) or not (inputs is None or _are_tokens(inputs)):
        return False
    norms, numbers = unread.at_hand, unread.at_hand.values()
    value, norm = loss.item(), hypot(*numbers)
    if not (isfinite(norm) and isfinite(value)):
        return False
    value, norm = shorten(value), in_seven(norm)
    name = None if inputs is None else name_of_tokens(inputs)
    if not memory.pass_by(HistoryStep(attempt.step, value, attempt.rates[0], name, norms), norm, min(numbers)):
        return False
    # From here on nothing turns back.
    attempt.loss, attempt.global_norm, attempt.norms, attempt.input_hash, attempt.unread = value, norm, norms, name, None
    attempt.values = _known(attempt, batch_id, folder) | attempt.values
    try:
        folder.append_at_once(attempt.step, attempt.time, attempt.values)
    except Exception as error:  # noqa: BLE001  a disk may fail in any way
        guard.failed("writing scalars.jsonl", error)
    return True


def _known(attempt: StepState, batch_id: str | int | None, folder: RunFolder) -> dict[str, Any]:
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


def _are_tokens(inputs: Any) -> bool:
    return type(inputs) is Tensor and inputs.dtype == torch.int64 and inputs.is_cpu and inputs.layout == torch.strided
