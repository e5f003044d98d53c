"""The place of each tensor in the model, that is its block and its kind, from `run.json` or else from its name."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from msgspec import UNSET, Struct

from ckaudit.contract.schema.manifest import LossKind, Manifest, NoGradient, TensorFacts
from ckaudit.contract.schema.tensor_names import NAMES, NUMBER, block_of, no_gradient_by_name
from ckaudit.run.series import Floats

NOT_OF_TOKENS = "the loss is not one of tokens"
BRANCHES = ("attention", "mlp")
"""The parts of a block that add to the residual stream in parallel; experts count as the MLP."""

MAX_BLOCKS = 2000
"""Two for each of a thousand layers (Wang et al. 2022); more names than that are no blocks, but names that keep changing."""

_EXPERT = re.compile(r"(^|[._])experts?[._]?\d+([._]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_PRODUCT = re.compile(r"mm\b|conv|linear|matmul|einsum|mv\b|rnn|lstm|gru")
"""Operators that multiply their inputs by a matrix, in PyTorch's names."""
_KINDS = (
    ("norm", re.compile(r"norm|(^|[._])ln(_?\w*)?([._]|$)|gamma", re.IGNORECASE)),
    ("embedding", re.compile(r"emb|wte|wpe", re.IGNORECASE)),
    ("head", re.compile(r"lm_head|(^|[._])(head|unembed|output)([._]weight|[._]bias)?$", re.IGNORECASE)),
    ("router", re.compile(r"router|(^|[._])gate([._]weight)?$", re.IGNORECASE)),
    ("attention", re.compile(r"attn|attention|[._](w?[qkvo]|[qkvo]_proj|qkv|c_attn)([._]|$)", re.IGNORECASE)),
    ("mlp", re.compile(r"mlp|ffn|feed_forward|(gate|up|down)_proj|[._]w[123]([._]|$)|fc", re.IGNORECASE)),
)


class TensorTable(Struct, frozen=True):
    """Known facts of the parameter tensors."""

    facts: Mapping[str, TensorFacts]

    def depth(self, name: str) -> int | None:
        """Return the index of a tensor's block, counted from the input; None outside the blocks."""
        fact = self.facts.get(name)
        if fact is not None:
            return None if fact.depth is UNSET else fact.depth
        match = NUMBER.search(name)
        return int(match["depth"]) if match else None

    def kind(self, name: str) -> str:
        """Return a tensor's kind, such as attention or mlp."""
        fact = self.facts.get(name)
        if fact is not None and fact.kind is not UNSET:
            return fact.kind
        return _kind_by_name(name)

    def is_factor(self, name: str) -> bool:
        """Tell whether a matrix multiplies its inputs, or may do so: only then does its gain determine the size of outputs.

        >>> table = TensorTable({"thresholds": TensorFacts(operator="sub"), "up": TensorFacts(operator="addmm")})
        >>> [table.is_factor(name) for name in ("thresholds", "up", "unknown")]
        [False, True, True]
        """
        fact = self.facts.get(name)
        return fact is None or not fact.operator or bool(_PRODUCT.search(fact.operator))

    def block(self, name: str) -> str | None:
        """Return the name of the block that contains a tensor; None outside the blocks.

        >>> TensorTable({}).block("decoder.layer.3.up.weight"), TensorTable({}).block("head.weight")
        ('decoder.layer.3', None)
        """
        fact, by_name = self.facts.get(name), block_of(name)
        named = by_name if fact is None or fact.block is UNSET else fact.block
        if named is not None and name.rpartition(".")[0] == named and self.kind(name) in ("norm", "embedding", "head", "router"):
            return None
        if fact is None or fact.block is not UNSET:
            return named
        if fact.depth is UNSET or (by_name is not None and _numbers(by_name)[-1] == fact.depth):
            return None if fact.depth is UNSET else by_name
        return f"block.{fact.depth}"

    def no_gradient_reason(self, name: str) -> NoGradient | None:
        """Return why a tensor's gradient is mathematically zero; None if it is not known to be."""
        fact = self.facts.get(name)
        if fact is not None and fact.no_gradient is not UNSET:
            return fact.no_gradient
        return no_gradient_by_name(name, self.kind(name))

    def blocks(self, names: Iterable[str]) -> list[str | None]:
        """Return the block of each of `names`; None for all of them if there are more than `MAX_BLOCKS` blocks."""
        blocks = [self.block(name) for name in names]
        return blocks if len(set(blocks)) <= MAX_BLOCKS else [None] * len(blocks)

    def builds(self, blocks: Sequence[str]) -> list[tuple[tuple[int, ...], ...]]:
        """Return the sorted shapes of each block's tensors, which blocks of one build share; empty if no shape is known.

        >>> first, second = (TensorFacts(block=f"blocks.{place}", shape=(4, 3)) for place in range(2))
        >>> TensorTable({"blocks.0.up": first, "blocks.1.up": second}).builds(["blocks.0", "blocks.1", "blocks.2"])
        [((4, 3),), ((4, 3),), ()]
        """
        shapes: dict[str | None, list[tuple[int, ...]]] = {}
        for name, fact in self.facts.items():
            if fact.shape is not UNSET:
                shapes.setdefault(self.block(name), []).append(tuple(fact.shape))
        return [tuple(sorted(shapes.get(block, ()))) for block in blocks]

    def branch(self, name: str) -> str | None:
        """Return a trainable tensor's branch as "blocks.3/attention" or "blocks.3/mlp"; None if it is in neither.

        >>> TensorTable({}).branch("blocks.3.attn.q.weight"), TensorTable({}).branch("blocks.3.attn_norm.weight")
        ('blocks.3/attention', None)
        """
        block, kind = self.block(name), self.kind(name)
        return f"{block}/{kind}" if block is not None and kind in BRANCHES and self.is_trainable(name) else None

    def module(self, name: str) -> str:
        """Return the module of a tensor; if none is recorded, the tensor's own name."""
        fact = self.facts.get(name)
        return name if fact is None or fact.module is UNSET else fact.module

    def is_expert(self, name: str) -> bool:
        """Tell whether a tensor belongs to an expert of a mixture.

        >>> TensorTable({}).is_expert("blocks.1.mlp.experts.3.up.weight")
        True
        """
        return _EXPERT.search(self.module(name)) is not None

    def roles(self, names: Iterable[str]) -> list[str]:
        """Return a name for each tensor that it shares with its counterparts in other blocks.

        >>> TensorTable({}).roles(["blocks.0.up", "blocks.1.up"])
        ['blocks.#.up/0', 'blocks.#.up/0']
        """
        seen: dict[str, int] = {}
        roles = []
        for module in map(self.module, names):
            seen[module] = seen.get(module, -1) + 1
            roles.append(f"{_NUMBER.sub('#', module)}/{seen[module]}")
        return roles

    def in_depth_order(self, blocks: Iterable[str]) -> list[str]:
        """Sort block names from input to output: stacks in the order of run.json, or else as given, blocks of each by number.

        >>> TensorTable({}).in_depth_order(["block.10", "block.9"])
        ['block.9', 'block.10']
        """
        names = list(blocks)
        known = dict.fromkeys(block for name in self.facts if (block := self.block(name)) is not None)
        order: dict[str, int] = {}
        for block in (*known, *names):
            order.setdefault(_stack(block), len(order))
        return sorted(names, key=lambda block: (order[_stack(block)], _numbers(block)))

    def path(self, name: str) -> list[str]:
        """Return a tensor with its operator, gradient node and kernels; an empty list if none of them is recorded.

        >>> TensorTable({"head.weight": TensorFacts(operator="mm", backward="MmBackward0")}).path("head.weight")
        ['head.weight', 'mm', 'MmBackward0']
        """
        fact = self.facts.get(name, TensorFacts())
        kernels = ", ".join(fact.kernels or ())
        below = [part for part in (fact.operator, fact.backward, kernels) if part]
        return [name, *below] if below else []

    def elements(self, names: Iterable[str]) -> Floats:
        """Return the number of elements of each of `names`, shape (P,); NaN if no shape is recorded, 1 for a scalar.

        >>> TensorTable({"up": TensorFacts(shape=(4, 3)), "bias": TensorFacts()}).elements(["up", "bias"])
        array([12., nan])
        """
        shapes = [self.facts.get(name, TensorFacts()).shape for name in names]
        return np.array([math.nan if shape is UNSET else math.prod(shape) for shape in shapes], np.float64)

    def is_one_number(self, name: str) -> bool:
        """Tell whether run.json lists a tensor with a single element.

        >>> table = TensorTable({"bias": TensorFacts(shape=(1,)), "up": TensorFacts(shape=(4, 3))})
        >>> table.is_one_number("bias"), table.is_one_number("up"), table.is_one_number("down")
        (True, False, False)
        """
        shape = self.facts.get(name, TensorFacts()).shape
        return shape is not UNSET and math.prod(shape) == 1

    def is_matrix(self, name: str) -> bool:
        """Tell whether run.json lists a tensor with two dimensions or more, none of them empty.

        A gain per head or channel whose shape broadcasts over feature maps, such as (4, 1, 1), counts as a vector.

        >>> shapes = {"up": (4, 3), "bias": (4,), "gain": (4, 1, 1)}
        >>> table = TensorTable({name: TensorFacts(shape=shape) for name, shape in shapes.items()})
        >>> table.is_matrix("up"), table.is_matrix("bias"), table.is_matrix("gain"), table.is_matrix("down")
        (True, False, False, False)
        """
        shape = self.facts.get(name, TensorFacts()).shape
        if shape is UNSET or len(shape) < 2 or not all(shape):
            return False
        return len(shape) == 2 or sum(size > 1 for size in shape) > 1

    def is_vector(self, name: str) -> bool:
        """Tell whether run.json lists a tensor with one dimension or none."""
        shape = self.facts[name].shape if name in self.facts else UNSET
        return shape is not UNSET and len(shape) < 2

    def width(self) -> int | None:
        """Return the number of channels of the residual stream, from the matrices of embeddings and head.

        Each matrix gives its smaller dimension, and the largest of these counts, because a matrix may have fewer tokens or
        positions than channels.

        >>> positions, tokens = (TensorFacts(kind="embedding", shape=(count, 64)) for count in (16, 96))
        >>> TensorTable({"position": positions, "token": tokens}).width()
        64
        """
        shapes = [fact.shape for fact in self.facts.values() if fact.kind in ("embedding", "head") and fact.shape]
        return max((min(shape) for shape in shapes if len(shape) == 2), default=None)

    def is_trainable(self, name: str) -> bool:
        """Tell whether a tensor is trained: it is unless run.json says otherwise."""
        fact = self.facts.get(name)
        return fact is None or fact.trainable is not False


def whole_parts(chosen: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return the chosen tensors in modules that are completely chosen and hold several blocks.

    >>> names = ["tower.blocks.0.up", "tower.blocks.1.up", "tower.norm", "text.blocks.0.up", "text.blocks.1.up"]
    >>> sorted(whole_parts(names[:4], names))
    ['tower.blocks.0.up', 'tower.blocks.1.up', 'tower.norm']
    """
    chosen, inside, blocks = {*chosen}, dict[str, int](), dict[str, set[str]]()
    for name in names:
        words = name.split(".")
        for count in range(1, len(words)):
            outer = ".".join(words[:count])
            inside[outer] = inside.get(outer, 0) + (name not in chosen)
            if (block := block_of(name)) is not None and block.startswith(f"{outer}."):
                blocks.setdefault(outer, set()).add(block)
    whole = {outer for outer, left in inside.items() if not left and len(blocks.get(outer, ())) > 1}
    return {name for name in chosen if any(name.startswith(f"{outer}.") for outer in whole)}


def last_of_stack(blocks: Sequence[str]) -> list[int]:
    """Return the index of the last block in each block's list; encoder and decoder, or policy and critic, are separate lists.

    >>> last_of_stack(["encoder.layer.0", "encoder.layer.1", "decoder.layer.0"])
    [1, 1, 2]
    >>> last_of_stack(["layer1.0", "layer1.1", "layer2.0"])
    [2, 2, 2]
    """
    last = {_stack(block): place for place, block in enumerate(blocks)}
    return [last[_stack(block)] for block in blocks]


@lru_cache(maxsize=NAMES)
def _kind_by_name(name: str) -> str:
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "other")


@lru_cache(maxsize=NAMES)
def _stack(block: str) -> str:
    return _NUMBER.sub("#", block)


@lru_cache(maxsize=NAMES)
def _numbers(block: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in _NUMBER.findall(block))


def loss_kind_of(manifest: Manifest | None) -> LossKind | Literal["unknown"]:
    """Return the unit of the training loss, from run.json or from the vocabulary in it."""
    if manifest is None:
        return "unknown"
    if manifest.loss_kind is not UNSET:
        return manifest.loss_kind
    return "unknown" if manifest.vocabulary is UNSET else "nats_per_token"


def loss_vocabulary(manifest: Manifest | None) -> int | None:
    """Return the number of tokens that the loss chooses among; None if unknown or if the loss is not over tokens.

    >>> facts = Manifest(schema_version="ck.run.v1", vocabulary=64, loss_kind="other")
    >>> loss_vocabulary(facts) is None
    True
    """
    if manifest is None or manifest.vocabulary is UNSET or manifest.vocabulary < 1 or loss_kind_of(manifest) == "other":
        return None
    return manifest.vocabulary


def table_of(manifest: Manifest | None) -> TensorTable:
    """Return the tensor facts of a manifest; without one the table is empty, and names decide."""
    facts = manifest.tensors if manifest else UNSET
    return TensorTable({} if facts is UNSET else facts)
