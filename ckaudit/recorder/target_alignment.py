"""Relation of targets to the tokens that a model reads: the next tokens, the same ones, or something else."""

import inspect
from collections.abc import Iterable
from math import prod
from typing import Any

from ckaudit.recorder.stats.arrays import Array, dtype_name, is_sharded

TOKEN_TYPES = ("int64", "int32", "int16", "uint8")
IGNORED = -100  # the target that torch.nn.functional.cross_entropy ignores


def relation(
    inputs: Array, targets: Array, is_mapping: bool, loss_targets: int | None, *, is_shifted_later: bool
) -> tuple[float | None, float | None]:
    """Return the share of targets that are the next input, and of those that are the same input; None if it is not known.

    Args:
        inputs: Tokens.
        targets: Targets of the same shape.
        is_mapping: Whether the batch is a mapping: then only the code knows whether the model shifts the labels.
        loss_targets: Number of targets of the loss function, if it was seen.
        is_shifted_later: Whether the model shifts labels itself.
    """
    as_given = match(inputs, targets)
    if not (is_mapping or is_shifted_later) and loss_targets is None and inputs is targets:
        return None, None  # the same array twice: it is unknown how it was used
    if not is_mapping and loss_targets is not None and loss_targets % _counted(targets):
        if as_given != 1 or loss_targets % _counted(targets[..., 1:]):
            return None, None
        is_shifted_later = True
    if is_shifted_later and (is_mapping or as_given == 1):
        return match(inputs[..., 1:], targets[..., 1:]), match(inputs[..., :-1], targets[..., 1:])
    if is_mapping:  # only the code of the model knows whether it shifts labels
        return None, None
    return shift_match(inputs, targets), as_given


def shifts_labels(model: Any) -> bool:
    """Return whether a model of `transformers` computes the next-token loss from labels that it shifts itself.

    The class name says so, as LlamaForCausalLM. A class with another name, as GPT2LMHeadModel, does so if its `forward` uses
    `loss_function`. XLNetLMHeadModel computes another loss, of labels that are not shifted.
    """
    kind = getattr(model, "loss_type", None)
    if kind is not None or not hasattr(model, "loss_function"):
        return bool(kind == "ForCausalLM")
    return "loss_function" in inspect.unwrap(type(model).forward).__code__.co_names


def shift_match(inputs: Array, targets: Array) -> float | None:
    """Return the share of counted targets equal to the next input, shapes (..., T); None if no target counts."""
    return match(inputs[..., 1:], targets[..., :-1])


def next_token_share(rows: Iterable[Array], targets: Array | None) -> float | None:
    """Return the largest share of targets that are the next token in one of several inputs; None without such targets.

    Args:
        rows: Tokens, each (B, T), or (T, B) if time comes first.
        targets: Classes as the loss function got them, in any shape: one for each token, or for each but the last of a row.
    """
    if targets is None or is_sharded(targets):
        return None
    near = [tokens for tokens in rows if not is_sharded(tokens) and tokens.device == targets.device]
    shares = [_share_along(tokens, targets, axis) for tokens in near for axis in (0, 1) if tokens.shape[axis] > 1]
    return max((share for share in shares if share is not None), default=None)


def same_token_share(rows: Iterable[Array], targets: Array | None) -> float | None:
    """Return the largest share of targets that equal the token at the same position of one of several inputs; None without such.

    Args:
        rows: Tokens, each (B, T).
        targets: Classes as the loss function got them, one for each token of a row of inputs.
    """
    if targets is None or is_sharded(targets):
        return None
    near = [tokens for tokens in rows if not is_sharded(tokens) and tokens.device == targets.device]
    shares = [
        _share_of_words(tokens, targets.reshape(tokens.shape)) for tokens in near if prod(tokens.shape) == prod(targets.shape)
    ]
    return max((share for share in shares if share is not None), default=None)


def _share_of_words(tokens: Array, targets: Array, *, min_values: int = 3) -> float | None:
    """Return the share of targets equal to the token at their position; None if the equal ones have only one or two values.

    Token types are mostly 0, and so are labels of words without a tag: they agree without any meaning.
    """
    share = match(tokens, targets)
    same = tokens[(tokens == targets) & (targets != IGNORED)]
    return share if share is None or share < 0.5 or len(same.unique()) >= min_values else None


def _share_along(tokens: Array, targets: Array, axis: int) -> float | None:
    """Return the share of targets equal to the next token along an axis; positions where the token repeats do not count."""
    earlier, later = (tokens[:-1], tokens[1:]) if axis == 0 else (tokens[:, :-1], tokens[:, 1:])
    if prod(targets.shape) == prod(tokens.shape):
        targets = targets.reshape(tokens.shape)
        targets = targets[:-1] if axis == 0 else targets[:, :-1]
    elif prod(targets.shape) == prod(later.shape):
        targets = targets.reshape(later.shape)
    else:
        return None
    counted = (targets != IGNORED) & (later != earlier)
    total = int(counted.sum())
    return int(((targets == later) & counted).sum()) / total if total else None


def rows_of_tokens(inputs: Any) -> list[Array]:
    """Return a list of the input if it is rows of integers; else an empty list."""
    is_rows = hasattr(inputs, "shape") and len(inputs.shape) == 2 and dtype_name(inputs) in TOKEN_TYPES
    return [inputs] if is_rows else []


def match(inputs: Array, targets: Array, *, ignored: int = IGNORED) -> float | None:
    """Return the share of counted targets equal to the input at their position; None if no target counts."""
    counted = targets != ignored
    total = int(counted.sum())
    return int(((inputs == targets) & counted).sum()) / total if total else None


def _counted(targets: Array) -> int:
    """Return how many targets count, at least 1."""
    return max(int((targets != IGNORED).sum()), 1)
