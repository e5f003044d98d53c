"""The tensor table: every parameter's name, place in the model, part, shape, and whom it is tied to."""

import re
from collections.abc import Callable, Mapping, Sequence

import torch
from msgspec import UNSET
from torch import Tensor, nn

from ckaudit.contract.manifest import TensorFacts, TensorKind
from ckaudit.recorder.hooks import Hook
from ckaudit.recorder.tensors import dense, dtype_name, stride_of

RECURRENT = (nn.RNNBase, nn.RNNCellBase)
CONVOLUTION = tuple(value for name, value in vars(nn).items() if re.fullmatch(r"(Lazy)?Conv(Transpose)?\dd", name))
NORM = re.compile(r"norm|^ln(_?\w{1,3})?$")
EMBEDDING = re.compile(r"embed|(^|_)emb(_|$)|^w[tp]e$|^pos(ition)?s?$")
ATTENTION = re.compile(r"attn|attention|^(q|k|v|o|qkv|kv|wq|wk|wv|wo|[qkvo]_proj|query|key|value|in_proj|out_proj)$")
MLP = re.compile(r"mlp|ffn|feed_?forward|expert|^ff$|^(fc|linear|w)[123]?$|^c_fc$|intermediate|^(gate|up|down)(_proj)?$")
HEAD = re.compile(r"head$|^classifier$|^unembed|^to_logits$|^output$")


def inner(model: nn.Module) -> nn.Module:
    """Return the user's own module from inside `torch.compile` and data-parallel wrappers, so that names stay the same."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in dict(model.named_children()):
            model = model.get_submodule("_orig_mod")
        else:
            return model


def parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return every parameter once, by its first name, in the order of registration."""
    return dict(model.named_parameters())


def depth_of(name: str) -> int | None:
    """Return the index of the block: the first whole number among the parts of a name.

    >>> depth_of("blocks.3.attn.q.weight"), depth_of("head.weight")
    (3, None)
    """
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def kind_of(name: str, owner: nn.Module, shape: Sequence[int]) -> TensorKind:
    """Return a parameter's part in the model, by the type of its module first and by the words of its name second.

    A layer named `gate` that narrows is a router; one that widens belongs to a gated MLP.
    """
    parts = [part for part in name.lower().split(".") if not part.isdecimal()]
    words = parts[:-1] or parts
    outside = depth_of(name) is None
    signs: dict[TensorKind, bool] = {
        "embedding": isinstance(owner, nn.Embedding | nn.EmbeddingBag),
        "norm": "norm" in type(owner).__name__.lower() or bool(NORM.search(words[-1])),
        "recurrent": isinstance(owner, RECURRENT),
        "conv": isinstance(owner, CONVOLUTION),
        "router": "router" in words or (words[-1] == "gate" and len(shape) == 2 and shape[0] < shape[1]),
        "head": outside and bool(HEAD.search(words[-1])),
    }
    return next((kind for kind, holds in signs.items() if holds), None) or _kind_by_words(parts)


def _kind_by_words(parts: Sequence[str]) -> TensorKind:
    if any(EMBEDDING.search(word) for word in parts[-2:]):
        return "embedding"
    # The innermost word decides: attention.output.dense is attention, intermediate.dense is not.
    for word in reversed(parts):
        if MLP.search(word):
            return "mlp"
        if ATTENTION.search(word):
            return "attention"
    return "other"


def tensor_table(model: nn.Module) -> dict[str, TensorFacts]:
    """Return the facts of every parameter, in the order of registration; a tied one says whose storage it shares."""
    first: dict[object, str] = {}
    table = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        owner = name.rpartition(".")[0]
        depth, tied = depth_of(name), first.setdefault(storage_of(tensor), name)
        table[name] = TensorFacts(
            depth=UNSET if depth is None else depth,
            kind=kind_of(name, model.get_submodule(owner), tensor.shape),
            module=owner,
            shape=list(dense(tensor).shape),
            dtype=dtype_name(tensor),
            trainable=tensor.requires_grad,
            stride=stride_of(tensor.shape),
            device=str(tensor.device),
            tied_to=UNSET if tied == name else tied,
        )
    return table


def storage_of(tensor: Tensor) -> object:
    """Return what two parameters have in common exactly where they are one tensor in memory."""
    if tensor.device.type == "meta" or not tensor.numel() or tensor.layout != torch.strided:
        return id(tensor)
    return tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def trainable_count(table: Mapping[str, TensorFacts]) -> int:
    """Return the number of trainable elements, shared ones counted once."""
    shapes = [facts.shape for facts in table.values() if facts.trainable is True and facts.tied_to is UNSET]
    return sum(torch.Size(shape).numel() for shape in shapes if shape is not UNSET)


class ForwardOrder:
    """Watches one forward pass for the order in which modules with parameters of their own are called."""

    def __init__(self, model: nn.Module) -> None:
        self.order: dict[str, int] = {}
        owners = [(name, module) for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
        self._handles = [module.register_forward_pre_hook(Hook(self._noting(name))) for name, module in owners]

    def _noting(self, name: str) -> Callable[[object], None]:
        def note(_inputs: object) -> None:
            self.order.setdefault(name, len(self.order))

        return note

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def sort(self, table: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
        """Return the table in forward order; modules that were not called keep their order at the end."""
        last = len(self.order)
        rank = {name: self.order.get(str(facts.module), last) for name, facts in table.items()}
        return {name: table[name] for name in sorted(table, key=rank.__getitem__)}
