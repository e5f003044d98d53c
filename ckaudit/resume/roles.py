"""The parts of a checkpoint: weights, optimizer, schedule, random state, step, and the position in the data."""

import re
from typing import Any

from msgspec import Struct, field

from ckaudit.resume.content import ELEMENTS, Content, DictPairs, StoredTensor, parts

PARTS = ("weights", "optimizer", "schedule", "scaler", "random_state", "step", "data_position")
WEIGHTS = frozenset(
    (
        "model",
        "state_dict",
        "model_state_dict",
        "module",
        "net",
        "network",
        "weights",
        "params",
        "ema",
        "model_ema",
        "ema_state_dict",
        "state_dict_ema",
        "student",
        "teacher",
        "generator",
        "discriminator",
        "actor",
        "critic",
        "app",
    )
)
OTHER = re.compile(r"rng|random|sched|scaler|callback|loop|hyper|hparam|config|args|best|metric|loss|grad_accum", re.IGNORECASE)
OPTIMIZER = re.compile(r"optim\w*|opt|opt_state|base_optimizer_state", re.IGNORECASE)
MOMENTS = frozenset(
    ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "acc_delta", "exp_inf", "ax", "eta", "sum")
)
STEPS = ("global_step", "global_steps", "iter_num", "iteration", "step", "steps", "iter", "num_updates")
_FILES = {
    "optimizer": re.compile(r"(?:^|[-_.])optim", re.IGNORECASE),
    "schedule": re.compile(r"sched", re.IGNORECASE),
    "scaler": re.compile(r"scaler", re.IGNORECASE),
    "random_state": re.compile(r"rng_state|random_state", re.IGNORECASE),
    "data_position": re.compile(r"dataloader|^sampler|trainer_state\.json$", re.IGNORECASE),
}
_KEYS = {
    "schedule": re.compile(r".*sched.*|_last_lr", re.IGNORECASE),
    "scaler": re.compile(r".*scaler.*|growth_factor", re.IGNORECASE),
    "random_state": re.compile(r".*rng.*|.*random_states?.*", re.IGNORECASE),
    "data_position": re.compile(
        r"data_?loader.*|.*sampler.*|data_(?:position|state|offset)|consumed_\w*samples|samples_seen|tokens_seen|batch_progress"
        r"|(?:train_)?data(?:set)?_state(?:_dict)?|batch_idx|epoch_loop\.batch_progress",
        re.IGNORECASE,
    ),
}


class Inventory(Struct):
    """The parts and sizes of a checkpoint, collected file by file.

    Attributes:
        parts: Parts that exist.
        step: The step that its content states.
        parameters: Elements of its weights.
        weight_bytes: Bytes of its weights.
        optimizer_bytes: Bytes of its optimizer state.
        other_bytes: Bytes of all other tensors.
    """

    parts: set[str] = field(default_factory=set)
    step: int | None = None
    parameters: int = 0
    weight_bytes: int = 0
    optimizer_bytes: int = 0
    other_bytes: int = 0
    _rank: int = len(STEPS)

    def take_file(self, name: str) -> None:
        """Add the parts that the name of a file shows."""
        self.parts |= {part for part, pattern in _FILES.items() if part != "optimizer" and pattern.search(name)}

    def take(self, content: Content, file: str) -> dict[int, str]:
        """Add the content of one file, and return the role of each of its tensors by index."""
        roles = dict(enumerate(_roles(content, file)))
        if file.rpartition("/")[2].startswith("training_args"):
            return roles  # arguments of the training, not part of its state
        for index, tensor in enumerate(content.tensors):
            self._count(tensor, roles[index])
        for keys, part in parts(content.value, max_depth=6):
            self._look(keys, part)
        return roles

    def take_values(self, values: Any) -> None:
        """Add a JSON document: the step that it states, and the parts that its keys name."""
        for name, value in values.items() if isinstance(values, dict) else ():
            self._offer(name, value)
            self.parts |= {part for part, pattern in _KEYS.items() if value not in (None, [], {}) and pattern.fullmatch(name)}

    def _count(self, tensor: StoredTensor, role: str) -> None:
        if role == "weights":
            self.parameters += tensor.needs // ELEMENTS[tensor.dtype].size
            self.weight_bytes += tensor.needs
        elif role == "optimizer":
            self.optimizer_bytes += tensor.needs
        else:
            self.other_bytes += tensor.needs
        if role != "other":
            self.parts.add(role)

    def _look(self, keys: tuple[str, ...], part: Any) -> None:
        if not keys or (
            isinstance(part, (list, tuple, DictPairs)) and not len(part.items if isinstance(part, DictPairs) else part)
        ):
            return
        in_weights = keys[0].lower() in WEIGHTS and not any(OTHER.search(word) for word in keys[1:2])
        if not in_weights and len(keys) <= 5:
            self.parts |= {name for name, pattern in _KEYS.items() if pattern.fullmatch(keys[-1])}
        if isinstance(part, DictPairs) and {"state", "param_groups"} <= set(part.names()):
            self.parts.add("optimizer")
        if len(keys) <= 2 and not any(OPTIMIZER.fullmatch(word) or "sched" in word.lower() for word in keys):
            self._offer(keys[-1], part)

    def _offer(self, name: str, value: Any) -> None:
        rank = STEPS.index(name) if name in STEPS else len(STEPS)
        if rank < self._rank and type(value) is int and 0 <= value < 2**53:
            self.step, self._rank = value, rank
            self.parts.add("step")


def _roles(content: Content, file: str) -> list[str]:
    """Return the role of each tensor: weights, optimizer or other."""
    base = file.rpartition("/")[2]
    if any(pattern.search(base) for part, pattern in _FILES.items() if part not in ("optimizer", "data_position")):
        return ["other"] * len(content.tensors)
    if _FILES["optimizer"].search(base) and "model_optim" not in base:
        return ["optimizer"] * len(content.tensors)
    has_named_weights = any(tensor.keys and tensor.keys[0].lower() in WEIGHTS for tensor in content.tensors)
    return [_role(tensor, has_named_weights=has_named_weights) for tensor in content.tensors]


def _role(tensor: StoredTensor, *, has_named_weights: bool) -> str:
    keys = tensor.keys or ("",)
    if any(OPTIMIZER.fullmatch(word) for word in keys[:2]) or (keys[-1] in MOMENTS and len(keys) > 2):
        return "optimizer"
    if "mask" in keys[-1].lower():
        return "other"  # a mask contains minus infinity by design
    if keys[0].lower() in WEIGHTS:
        return "weights"
    if has_named_weights or (len(keys) <= 2 and OTHER.search(keys[0]) and not keys[-1].endswith(("weight", "bias"))):
        return "other"
    return "weights" if tensor.shape else "other"
