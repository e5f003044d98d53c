"""Where each tensor sits in the model: its block and its kind, from `run.json`, or else from its name."""

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
"""What a block adds to the stream side by side; experts count as the MLP."""

MAX_BLOCKS = 2000
"""Two for each of a thousand layers (Wang et al. 2022): more are no blocks, but names that are ever new."""

_EXPERT = re.compile(r"(^|[._])experts?[._]?\d+([._]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_PRODUCT = re.compile(r"mm\b|conv|linear|matmul|einsum|mv\b|rnn|lstm|gru")
"""Words of the operators that multiply their inputs by a matrix, as PyTorch names them."""
_KINDS = (
    ("norm", re.compile(r"norm|(^|[._])ln(_?\w*)?([._]|$)|gamma", re.IGNORECASE)),
    ("embedding", re.compile(r"emb|wte|wpe", re.IGNORECASE)),
    ("head", re.compile(r"lm_head|(^|[._])(head|unembed|output)([._]weight|[._]bias)?$", re.IGNORECASE)),
    ("router", re.compile(r"router|(^|[._])gate([._]weight)?$", re.IGNORECASE)),
    ("attention", re.compile(r"attn|attention|[._](w?[qkvo]|[qkvo]_proj|qkv|c_attn)([._]|$)", re.IGNORECASE)),
    ("mlp", re.compile(r"mlp|ffn|feed_forward|(gate|up|down)_proj|[._]w[123]([._]|$)|fc", re.IGNORECASE)),
)


class TensorTable(Struct, frozen=True):
    """What is known of the parameter tensors."""

    facts: Mapping[str, TensorFacts]

    def depth(self, name: str) -> int | None:
        """Return the index of a tensor's block from the input, None outside the blocks."""
        fact = self.facts.get(name)
        if fact is not None:
            return None if fact.depth is UNSET else fact.depth
        match = NUMBER.search(name)
        return int(match["depth"]) if match else None

    def kind(self, name: str) -> str:
        """Return a tensor's part in the model, such as attention or mlp."""
        fact = self.facts.get(name)
        if fact is not None and fact.kind is not UNSET:
            return fact.kind
        return _kind_by_name(name)

    def is_factor(self, name: str) -> bool:
        """Tell whether a matrix multiplies its inputs, as far as is known: only then does its gain say how large outputs are.

        >>> table = TensorTable({"thresholds": TensorFacts(operator="sub"), "up": TensorFacts(operator="addmm")})
        >>> [table.is_factor(name) for name in ("thresholds", "up", "unknown")]
        [False, True, True]
        """
        fact = self.facts.get(name)
        return fact is None or not fact.operator or bool(_PRODUCT.search(fact.operator))

    def block(self, name: str) -> str | None:
        """Return the name of the block's module that a tensor lies in, None outside the blocks.

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
        """Return why a tensor's gradient is zero by mathematics, None where nothing says that it is."""
        fact = self.facts.get(name)
        if fact is not None and fact.no_gradient is not UNSET:
            return fact.no_gradient
        return no_gradient_by_name(name, self.kind(name))

    def blocks(self, names: Iterable[str]) -> list[str | None]:
        """Return the block of each of `names`; where there would be more than `MAX_BLOCKS`, they are none."""
        blocks = [self.block(name) for name in names]
        return blocks if len(set(blocks)) <= MAX_BLOCKS else [None] * len(blocks)

    def builds(self, blocks: Sequence[str]) -> list[tuple[tuple[int, ...], ...]]:
        """Return the shapes of each block's tensors, which blocks of one build share; nothing where no shape is known.

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
        """Return a trainable tensor's branch as "blocks.3/attention" or "blocks.3/mlp", None where it is in neither.

        >>> TensorTable({}).branch("blocks.3.attn.q.weight"), TensorTable({}).branch("blocks.3.attn_norm.weight")
        ('blocks.3/attention', None)
        """
        block, kind = self.block(name), self.kind(name)
        return f"{block}/{kind}" if block is not None and kind in BRANCHES and self.is_trainable(name) else None

    def module(self, name: str) -> str:
        """Return the module that holds a tensor; where none is recorded, the tensor's own name."""
        fact = self.facts.get(name)
        return name if fact is None or fact.module is UNSET else fact.module

    def is_expert(self, name: str) -> bool:
        """Tell whether a tensor belongs to an expert of a mixture.

        >>> TensorTable({}).is_expert("blocks.1.mlp.experts.3.up.weight")
        True
        """
        return _EXPERT.search(self.module(name)) is not None

    def roles(self, names: Iterable[str]) -> list[str]:
        """Return the name that each tensor shares with its namesakes in other blocks.

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
        """Sort block names from the input to the output: stacks as run.json has them, else as they come, each by number.

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
        """Return a tensor with its operator, the node of its gradient and its kernels; nothing where none is recorded.

        >>> TensorTable({"head.weight": TensorFacts(operator="mm", backward="MmBackward0")}).path("head.weight")
        ['head.weight', 'mm', 'MmBackward0']
        """
        fact = self.facts.get(name, TensorFacts())
        kernels = ", ".join(fact.kernels or ())
        below = [part for part in (fact.operator, fact.backward, kernels) if part]
        return [name, *below] if below else []

    def elements(self, names: Iterable[str]) -> Floats:
        """Return how many elements each of `names` has, shape (P,); NaN where no shape is recorded, 1 for a single number.

        >>> TensorTable({"up": TensorFacts(shape=(4, 3)), "bias": TensorFacts()}).elements(["up", "bias"])
        array([12., nan])
        """
        shapes = [self.facts.get(name, TensorFacts()).shape for name in names]
        return np.array([math.nan if shape is UNSET else math.prod(shape) for shape in shapes], np.float64)

    def is_one_number(self, name: str) -> bool:
        """Tell whether run.json says that a tensor has a single element.

        >>> table = TensorTable({"bias": TensorFacts(shape=(1,)), "up": TensorFacts(shape=(4, 3))})
        >>> table.is_one_number("bias"), table.is_one_number("up"), table.is_one_number("down")
        (True, False, False)
        """
        shape = self.facts.get(name, TensorFacts()).shape
        return shape is not UNSET and math.prod(shape) == 1

    def is_matrix(self, name: str) -> bool:
        """Tell whether run.json gives a tensor two dimensions or more, and elements in them.

        A gain of each head or channel that is shaped to be multiplied with maps, such as (4, 1, 1), is a vector.

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
        """Tell whether run.json gives a tensor one dimension, or none."""
        shape = self.facts[name].shape if name in self.facts else UNSET
        return shape is not UNSET and len(shape) < 2

    def width(self) -> int | None:
        """Return how many channels the stream between the blocks has, from the matrices of embeddings and head.

        Its size is the smaller one of each, unless there are fewer tokens or positions than channels.

        >>> positions, tokens = (TensorFacts(kind="embedding", shape=(count, 64)) for count in (16, 96))
        >>> TensorTable({"position": positions, "token": tokens}).width()
        64
        """
        shapes = [fact.shape for fact in self.facts.values() if fact.kind in ("embedding", "head") and fact.shape]
        return max((min(shape) for shape in shapes if len(shape) == 2), default=None)

    def is_trainable(self, name: str) -> bool:
        """Tell whether a tensor takes a gradient: it does unless the run records otherwise."""
        fact = self.facts.get(name)
        return fact is None or fact.trainable is not False


def whole_parts(chosen: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return the chosen tensors in modules that are chosen completely and hold several blocks.

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
    """Return the last block of each block's own list: an encoder's is not a decoder's, nor a policy's a critic's.

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
    """Return what one unit of the training loss is, as far as run.json or the vocabulary in it tells."""
    if manifest is None:
        return "unknown"
    if manifest.loss_kind is not UNSET:
        return manifest.loss_kind
    return "unknown" if manifest.vocabulary is UNSET else "nats_per_token"


def loss_vocabulary(manifest: Manifest | None) -> int | None:
    """Return among how many tokens the loss chooses; None where that is not known or the loss is not one of tokens.

    >>> facts = Manifest(schema_version="ck.run.v1", vocabulary=64, loss_kind="other")
    >>> loss_vocabulary(facts) is None
    True
    """
    if manifest is None or manifest.vocabulary is UNSET or manifest.vocabulary < 1 or loss_kind_of(manifest) == "other":
        return None
    return manifest.vocabulary


def table_of(manifest: Manifest | None) -> TensorTable:
    """Return what a manifest says of the tensors; without one, their names must do."""
    facts = manifest.tensors if manifest else UNSET
    return TensorTable({} if facts is UNSET else facts)
