"""The tensor table: every parameter's name, depth, role, shape, and tied parameter."""

import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, TypeVar

import torch
from msgspec import UNSET
from msgspec.structs import replace
from torch import Tensor, nn

from ckaudit.contract.schema.manifest import TensorFacts, TensorKind
from ckaudit.contract.schema.tensor_names import block_of, depth_of, kind_by_name, no_gradient_by_name
from ckaudit.recorder.guard import logger
from ckaudit.recorder.hooks.autograd_trace import PathTrace
from ckaudit.recorder.hooks.hook import Hook
from ckaudit.recorder.hooks.train_mode import batch_norm_facts, dropout_facts
from ckaudit.recorder.stats.arrays import dense, dtype_name, is_sharded, local, real_shape
from ckaudit.recorder.stats.quantiles import stride_of

T = TypeVar("T", bound=Tensor)

RECURRENT = (nn.RNNBase, nn.RNNCellBase)

POSITION = re.compile(r"(?i)pos(ition)?(s|_|$)|positional")
CONVOLUTION = tuple(value for name, value in vars(nn).items() if re.fullmatch(r"(Lazy)?Conv(Transpose)?\dd", name))

PRECISION = 1e-3  # of the mean square of a row; rows drawn at random from 512 channels differ by 6 %


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the user's own module from inside `torch.compile` and data-parallel wrappers, so that names do not change."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in dict(model.named_children()):
            model = model.get_submodule("_orig_mod")
        else:
            return model


def hookable(model: nn.Module) -> frozenset[str]:
    """Return the names of the modules, as in `inner(model)`, that run outside `torch.compile` and TorchScript.

    A hook inside would be compiled into the program, which changes it; a hook attached later would not be called. A TorchScript
    module takes no hooks.
    """
    compiled = [module for module in model.modules() if _runs_compiled(module)]
    inside = {id(module) for outer in compiled for module in outer.modules()}
    return frozenset(name for name, module in unwrapped(model).named_modules() if id(module) not in inside)


def hooked(model: nn.Module, *, compiled: bool) -> frozenset[str]:
    """Return `hookable`, empty if the whole model will be compiled, and log what is not observed."""
    names = frozenset[str]() if compiled else hookable(model)
    if len(names) < sum(1 for _ in unwrapped(model).named_modules()):
        logger.warning("the model is compiled: activations and attention inside it are not recorded")
    return names


def _runs_compiled(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return True
    return "_orig_mod" in dict(module.named_children()) or getattr(module, "_compiled_call_impl", None) is not None


def needs_other_ranks(model: nn.Module) -> bool:
    """Return whether parameters are sharded over ranks, so that a forward pass needs all of them."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        return True
    return any(hasattr(parameter, "placements") or hasattr(parameter, "ds_id") for parameter in model.parameters())


def parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return every parameter once, by its first name, in the order of registration."""
    return dict(model.named_parameters())


def distinct(tensors: Mapping[str, T]) -> dict[str, T]:
    """Return the tensors, those that share their storage once, by the first name."""
    first = {storage_of(tensor): name for name, tensor in reversed([*tensors.items()])}
    return {name: tensor for name, tensor in tensors.items() if first[storage_of(tensor)] == name}


def kind_of(name: str, owner: nn.Module, shape: Sequence[int]) -> TensorKind:
    """Return a parameter's role in the model, by the type of its module, else by the words of its name.

    A convolution named as a head is a head, as in image segmentation.
    """
    types: dict[TensorKind, bool] = {
        "embedding": isinstance(owner, nn.Embedding | nn.EmbeddingBag),
        "norm": "norm" in type(owner).__name__.lower(),
        "recurrent": isinstance(owner, RECURRENT),
        "conv": isinstance(owner, CONVOLUTION),
    }
    kind = next((kind for kind, holds in types.items() if holds), None)
    named = kind_by_name(name, shape) if kind in (None, "conv") else None
    return named if named is not None and (kind is None or named == "head") else kind or "other"


def tensor_table(model: nn.Module) -> dict[str, TensorFacts]:
    """Return the facts of every parameter in the order of registration; a tied one names the one whose storage it shares."""
    first: dict[object, str] = {}
    table = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        owner = name.rpartition(".")[0]
        kind = kind_of(name, model.get_submodule(owner), tensor.shape)
        block, tied = block_of(name), first.setdefault(storage_of(tensor), name)
        depth = None if block is None else depth_of(name)
        table[name] = TensorFacts(
            depth=UNSET if depth is None else depth,
            block=block or UNSET,
            kind=kind,
            no_gradient="fixed_table"
            if not tensor.requires_grad and is_table_of_sinusoids(tensor)
            else no_gradient_by_name(name, kind) or UNSET,
            module=owner,
            shape=list(tensor.shape if is_sharded(tensor) else dense(tensor).shape),
            dtype=dtype_name(tensor),
            trainable=tensor.requires_grad,
            stride=stride_of(real_shape(tensor)),
            device=str(tensor.device),
            tied_to=UNSET if tied == name else tied,
        )
    blocks = {str(facts.block) for facts in table.values() if facts.block is not UNSET}
    # A model inside a sequence is not a block: modules beside its own blocks, such as its embedding, are in no block.
    around = {outer for outer in blocks if any(block.startswith(f"{outer}.") for block in blocks)}
    return {name: replace(facts, block=UNSET, depth=UNSET) if facts.block in around else facts for name, facts in table.items()}


def storage_of(tensor: Tensor) -> object:
    """Return a value that two parameters share exactly if they are one tensor in memory."""
    tensor, whole = local(tensor), tensor
    if tensor.device.type == "meta" or not tensor.numel() or tensor.layout != torch.strided:
        return id(whole)
    return tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def trainable_count(table: Mapping[str, TensorFacts]) -> int:
    """Return the number of trainable elements; shared ones count once."""
    shapes = [facts.shape for facts in table.values() if facts.trainable is True and facts.tied_to is UNSET]
    return sum(torch.Size(shape).numel() for shape in shapes if shape is not UNSET)


def described(model: nn.Module) -> dict[str, Any]:
    """Return the facts of a model that are known before the first step, for `run.json`."""
    table = tensor_table(model)
    return {"tensors": table, "parameters": trainable_count(table), **dropout_facts(model), **batch_norm_facts(model)}


class ForwardOrder:
    """Watches one forward pass for the order of calls of modules with parameters, and the operators that read the parameters.

    Args:
        model: The model.
        names: Names of the modules that may be hooked; None: all.
    """

    def __init__(self, model: nn.Module, names: Container[str] | None = None) -> None:
        self.order: dict[str, int] = {}
        named = [(name, module) for name, module in model.named_modules() if names is None or name in names]
        owners = [(name, module) for name, module in named if any(True for _ in module.parameters(recurse=False))]
        self._hooked = None if names is None else frozenset(name for name, _ in named)
        self._paths = PathTrace(model, hookable=names is None or "" in names, names=names)
        self._handles = [module.register_forward_pre_hook(Hook(self._noting(name))) for name, module in owners]

    def _noting(self, name: str) -> Callable[[object], None]:
        def note(inputs: object) -> None:
            self.order.setdefault(name, len(self.order))
            self._paths.take(name, inputs)

        return note

    def close(self) -> None:
        """Stop watching."""
        self._paths.close()
        for handle in self._handles:
            handle.remove()

    def sort(self, table: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
        """Return the table in forward order, with operators; modules that were not called keep their order at the end."""
        last = len(self.order)
        rank = {name: self.order.get(str(facts.module), last) for name, facts in table.items()}
        in_order = {name: table[name] for name in sorted(table, key=rank.__getitem__)}
        return marked_unused(self._paths.describe(in_order), self.order.keys() - self._paths.unused_branches, self._hooked)


# Tensors that need no gradient: fixed tables of sinusoids, and modules that the forward pass does not use.
def is_table_of_sinusoids(tensor: Tensor) -> bool:
    """Return whether every row of a table consists of pairs of sine and cosine, so that its mean square is one half.

    Rows of zeros, as for padding or a class token, are skipped. Rows of random values have different mean squares.

    >>> import torch
    >>> angles = torch.arange(20.0)[:, None] / 100 ** torch.linspace(0, 1, 8)
    >>> is_table_of_sinusoids(torch.cat([angles.sin(), angles.cos()], 1)), is_table_of_sinusoids(torch.randn(20, 16))
    (True, False)
    """
    if tensor.ndim < 2 or is_sharded(tensor) or tensor.device.type == "meta" or not tensor.is_floating_point():
        return False
    rows = dense(tensor.detach()).reshape(-1, tensor.shape[-1]).float()
    squares = rows.square().mean(1)
    squares = squares[squares > 0]
    return len(squares) > 1 and bool(((squares - 0.5).abs() < PRECISION).all())


def unused(table: Mapping[str, TensorFacts], called: Collection[str], hooked: Collection[str] | None) -> frozenset[str]:
    """Return the tensors of modules outside the blocks that a forward pass did not call or whose output it did not use.

    Such a module is the largest one in which nothing was used, and it has a matrix: an unused pooling layer or head. A position
    table or a normalization that is never called was forgotten; so was a block, or a module in only some of the blocks. A module
    that no block calls is an option that is switched off, such as global attention of a Longformer. So is a tensor that is not
    read while others of its module are, such as a mask token.

    Args:
        table: All tensors, with the operators that read them.
        called: Names of the called modules, without those whose input is on the path to the output but whose output is not.
        hooked: Names of the modules that could be observed; None: all.
    """
    if all(facts.operator is UNSET for facts in table.values()):
        return frozenset()  # it is unknown what was read
    used = {facts.module for facts in table.values() if facts.operator is not UNSET} | {*called}
    idle = {str(facts.module) for facts in table.values() if facts.module not in used}
    idle = {module for module in idle if hooked is None or module in hooked}
    parts: dict[str, list[str]] = {}
    for name, facts in table.items():
        if facts.module in idle and (part := _part(str(facts.module), used)) is not None:
            parts.setdefault(part, []).append(name)
    idle_parts = {part: names for part, names in parts.items() if _is_optional(part, names, parts, table)}
    unread = {name for names in idle_parts.values() if any(_is_matrix(table[tensor]) for tensor in names) for name in names}
    return frozenset(unread | _switched_off(table))


def _is_optional(part: str, names: Sequence[str], idle: Container[str], table: Mapping[str, TensorFacts]) -> bool:
    """Tell whether an unused module is in no block, contains a whole stack of blocks, or is in all blocks and none uses it."""
    blocks = {str(table[name].block) for name in names if table[name].block is not UNSET}
    if not blocks or all(block.rpartition(".")[0].startswith(f"{part}.") for block in blocks):
        return True
    block, *others = blocks
    if others or not part.startswith(f"{block}."):
        return False
    stack = block.rpartition(".")[0]
    stacked = {str(facts.block) for facts in table.values() if str(facts.block).rpartition(".")[0] == stack}
    return len(stacked) > 1 and all(other + part.removeprefix(block) in idle for other in stacked)


def _switched_off(table: Mapping[str, TensorFacts]) -> set[str]:
    """Return the tensors that nothing reads while others of their module are read, except position tables."""
    read = {str(facts.module) for facts in table.values() if facts.operator is not UNSET}
    around = {module[: end.start()] for module in read for end in re.finditer(r"^|\.|$", module)}
    return {
        name
        for name, facts in table.items()
        if facts.operator is UNSET and facts.module in around and facts.trainable and not POSITION.search(name)
    }


def marked_unused(
    table: Mapping[str, TensorFacts], called: Collection[str], hooked: Collection[str] | None
) -> dict[str, TensorFacts]:
    """Return the table with the tensors of `unused` modules marked."""
    idle = unused(table, called, hooked)
    return {name: replace(facts, no_gradient="unused") if name in idle else facts for name, facts in table.items()}


def _part(module: str, used: Collection[object]) -> str | None:
    """Return the outermost module around a given one in which nothing is used; None if the module itself is used."""
    words = module.split(".")
    outer = [".".join(words[:count]) for count in range(1, len(words) + 1)]
    free = (part for part in outer if not any(str(one) == part or str(one).startswith(f"{part}.") for one in used))
    return next(free, None)


def _is_matrix(facts: TensorFacts) -> bool:
    return facts.kind != "embedding" and facts.shape is not UNSET and len(facts.shape) > 1
