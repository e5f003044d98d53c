"""Names of statistics of one tensor or layer in other programs, and their places in a checkpoint.

Composer and llm-foundry write `l2_norm/grad/<tensor>`, OLMo `optim/grad/<tensor>.norm`, OLMo-core `grads/<tensor>/var`,
levanter `grad/norm/<tensor>`, Lightning `grad_2.0_norm/<tensor>`, wandb.watch the histograms `gradients/<tensor>`; Megatron
writes `moe/<loss>_layer_<n>`, others `moe/layer_<n>/expert_<m>/load`. A norm over all tensors is not a statistic of one.
"""

import re
from collections.abc import Callable, Iterable
from math import sqrt

from msgspec import UNSET, Struct

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.contract.schema.tensor_names import kind_by_name

GRADIENTS, WEIGHTS, DELTAS, ACTIVATIONS = "gradients", "weights", "weight_deltas", "activations"
ATTENTION, MOE = "attention", "moe"
NORMS = {GRADIENTS: "norm", WEIGHTS: "frobenius_norm", DELTAS: "norm"}
"""Field of the L2 norm in each section of tensors."""

_WRAPPERS = re.compile(r"(?:^module\.|_fsdp_wrapped_module\.|_orig_mod\.|_forward_module\.|_checkpoint_wrapped_module\.)")
_TOTALS = frozenset("global total all overall mean avg average max min median std sum norm ratio".split())  # noqa: SIM905
_LIKE_A_TENSOR = re.compile(r"[./]|\d|(?:^|_)(?:weight|bias|kernel|gamma|beta|scale|embeddings?)$")
_DEPTH = re.compile(r"(?:^|[./])(\d+)(?=[./]|$)")
_NAMED_DEPTH = re.compile(r"(?:^|[./_])(?:layers?|blocks?|h)_?(\d+)(?=[./_]|$)", re.IGNORECASE)


class CheckpointPlace(Struct, frozen=True):
    """The place of a value in a checkpoint.

    Attributes:
        section: Section of a checkpoint, such as "gradients".
        name: The tensor or layer.
        field: The field; empty: a checkpoint has no field for the value.
        index: Position in a list such as that of experts; -1: the field holds one number.
        source: When in a step gradients were read, such as "pre_clip", where this is known of the writer.
        convert: Converts the writer's quantity to the field's, such as a variance to its square root.
        zero_is_absent: Whether the writer uses 0 for a missing value.
    """

    section: str
    name: str
    field: str
    index: int = -1
    source: str = ""
    convert: Callable[[float], float] | None = None
    zero_is_absent: bool = False


_Maker = Callable[[re.Match[str]], CheckpointPlace]
_TARGETS = {
    "grad": GRADIENTS,
    "grads": GRADIENTS,
    "gradient": GRADIENTS,
    "gradients": GRADIENTS,
    "param": WEIGHTS,
    "params": WEIGHTS,
    "parameter": WEIGHTS,
    "parameters": WEIGHTS,
    "weight": WEIGHTS,
    "weights": WEIGHTS,
    "update": DELTAS,
    "updates": DELTAS,
    "step": DELTAS,
    "activation": ACTIVATIONS,
    "activations": ACTIVATIONS,
}
_ANY = "|".join(word for word in sorted(_TARGETS, key=len, reverse=True) if word != "step")
_MEANS = {"avg": "mean", "mean": "mean", "average": "mean", "std": "std", "rms": "rms", "mean_abs": "mean_abs"}


def place_of(name: str) -> CheckpointPlace | None:
    """Return the place of a scalar by its name, or None where it is not a statistic of one tensor or layer.

    >>> place_of("l2_norm/grad/model.blocks.0.ffn.up_proj.weight").field, place_of("l2_norm/grad/global")
    ('norm', None)
    """
    for pattern, maker in _SCALARS:
        if match := pattern.fullmatch(name):
            place = maker(match)
            if _is_one(place.name):
                return place
    return None


def place_of_histogram(name: str) -> CheckpointPlace | None:
    """Return the place of a histogram by its name, with an empty field; None where it belongs to no tensor or layer.

    >>> place_of_histogram("gradients/fc.weight").section, place_of_histogram("fc.weight").section
    ('gradients', 'weights')
    """
    for pattern, maker in _HISTOGRAMS:
        if (match := pattern.fullmatch(name)) and _is_one(match["t"]):
            return maker(match)
    return None


def tensor_facts(names: Iterable[str]) -> dict[str, TensorFacts]:
    """Return depth, kind and module of tensors from their names, in order."""
    return {name: _facts(name) for name in names}


def _facts(name: str) -> TensorFacts:
    match = _DEPTH.search(name) or _NAMED_DEPTH.search(name)
    plain = name.replace("/", ".")
    return TensorFacts(
        depth=int(match[1]) if match else UNSET,
        kind=kind_by_name(plain, ()),
        module=name[: plain.rfind(".")] if "." in plain else "",
    )


def _is_one(name: str) -> bool:
    """Tell whether a name is that of one tensor or layer, not a word for all of them."""
    return name.lower() not in _TOTALS and _LIKE_A_TENSOR.search(name) is not None


def without_wrappers(name: str) -> str:
    """Return a tensor's name without the parts that data-parallel and compiling wrappers add."""
    return _WRAPPERS.sub("", name)


def _norm(match: re.Match[str], source: str = "") -> CheckpointPlace:
    section = _TARGETS[match["of"]]
    return CheckpointPlace(
        section, without_wrappers(match["t"]), NORMS.get(section, ""), source=source if section == GRADIENTS else ""
    )


def _composer(match: re.Match[str]) -> CheckpointPlace:
    return _norm(match, "post_clip")


def _before_clip(match: re.Match[str]) -> CheckpointPlace:
    return _norm(match, "pre_clip")


def _olmo(match: re.Match[str]) -> CheckpointPlace:
    """Return the place of an OLMo statistic; its min and max are those of magnitudes, for which there is no field."""
    section = _TARGETS[match["of"]]
    field = {"norm": NORMS.get(section, ""), "avg": "mean" if section in (GRADIENTS, WEIGHTS) else ""}.get(match["stat"], "")
    return CheckpointPlace(section, without_wrappers(match["t"]), field, source="pre_clip" if section == GRADIENTS else "")


def _moment(match: re.Match[str]) -> CheckpointPlace:
    """Return the place of a mean, a standard deviation or a variance; a sample deviation is treated as the population's."""
    section, stat = _TARGETS[match["of"]], match["stat"]
    if stat == "var":
        return CheckpointPlace(section, without_wrappers(match["t"]), "std" if section != DELTAS else "", convert=_root)
    if stat in ("norm", "l2", "l2_norm"):
        return CheckpointPlace(section, without_wrappers(match["t"]), NORMS.get(section, ""))
    field = _MEANS[stat]
    return CheckpointPlace(section, without_wrappers(match["t"]), field if field in _FIELDS[section] else "")


def _nowhere(match: re.Match[str]) -> CheckpointPlace:
    return CheckpointPlace("", without_wrappers(match["t"]), "")


def _relative(match: re.Match[str]) -> CheckpointPlace:
    return CheckpointPlace(DELTAS, without_wrappers(match["t"]), "relative")


def _composer_activation(match: re.Match[str]) -> CheckpointPlace:
    """Return the place of Composer's mean of an output; its other statistics are means over tokens, which have no field."""
    is_mean = match["stat"] == "average" and match["way"] == "output" and match["n"] == "0"
    return CheckpointPlace(ACTIVATIONS, without_wrappers(match["t"]), "mean" if is_mean else "")


def _expert(match: re.Match[str]) -> CheckpointPlace:
    return CheckpointPlace(MOE, f"layer.{match['l']}", "counts", index=int(match["e"]))


def _aux_loss(match: re.Match[str]) -> CheckpointPlace:
    """Return the place of Megatron's auxiliary loss of a layer; layers without experts get 0."""
    return CheckpointPlace(MOE, f"layer.{match['l']}", "aux_loss", zero_is_absent=True)


def _head(match: re.Match[str]) -> CheckpointPlace:
    field = "entropy_per_head" if match["what"] == "entropy" else "max_logit_per_head"
    return CheckpointPlace(ATTENTION, f"layer.{match['l']}", field, index=int(match["e"]))


def _root(variance: float) -> float:
    return sqrt(variance) if variance >= 0 else variance


_FIELDS = {
    GRADIENTS: {"mean", "std"},
    WEIGHTS: {"mean", "std"},
    DELTAS: set[str](),
    ACTIVATIONS: {"mean", "std", "rms", "mean_abs"},
}
_LAYER = r"layers?[._/ ]?(?P<l>\d{1,4})"
_EXPERT = r"exp(?:ert)?[._/ ]?(?P<e>\d{1,4})"
_LOAD = "load|tokens?|counts?|fraction|share|usage"


def _compiled(*pairs: tuple[str, _Maker]) -> tuple[tuple[re.Pattern[str], _Maker], ...]:
    before = r"(?:(?:train(?:ing|er)?|optim(?:izer)?|metrics|monitor|debug)[/.])?"
    return tuple((re.compile(before + pattern), maker) for pattern, maker in pairs)


_SCALARS = _compiled(
    (r"l2_norm/(?P<of>grad|param|update)/(?P<t>.+)", _composer),
    (
        r"layer_grad_l2_norm/(?P<t>.+)",
        lambda match: CheckpointPlace(GRADIENTS, without_wrappers(match["t"]), "norm", source="post_clip"),
    ),
    (r"l2_norm_ratio/update_param/(?P<t>.+)", _relative),
    (r"(?:l2_norm|l2_norm_ratio|cosine)/\w+/(?P<t>.+)", _nowhere),
    (
        r"activations/(?P<stat>l2_norm|average|kurtosis|max)/(?P<t>.+?)[_/](?P<way>input|output)[._](?P<n>\d+)",
        _composer_activation,
    ),
    (r"(?P<of>grad|param|update|step)/(?P<t>.+)\.(?P<stat>norm|avg|min|max)", _olmo),
    (r"exp_avg(?:_sq)?/(?P<t>.+)\.(?:norm|avg|min|max)", _nowhere),
    (r"(?P<of>grad|params|updates)/norm/(?P<t>.+)", _before_clip),
    (r"opt_state/.*norm/(?P<t>.+)", _nowhere),
    (r"grad_2(?:\.0)?_norm[/_](?P<t>.+)", lambda match: CheckpointPlace(GRADIENTS, without_wrappers(match["t"]), "norm")),
    (r"grad_(?:[\d.]+|inf)_norm/(?P<t>.+)", _nowhere),
    (rf"(?P<of>{_ANY})/(?P<t>.+)/(?P<stat>mean|avg|average|std|var|rms|mean_abs|norm|l2|l2_norm)", _moment),
    (r"(?P<of>grad|gradient|weight|param|parameter|update)_(?:l2_)?norms?(?:_per_(?:layer|param|tensor))?/(?P<t>.+)", _norm),
    (r"(?P<t>.+[./]\w+)/(?P<of>grad|gradient|weight|param|update)_(?:l2_)?norm", _norm),
    (r"(?:update_ratio|update_to_(?:weight|param)(?:_ratio)?|relative_update)s?/(?P<t>.+)", _relative),
    (rf"(?:moe|router|expert\w*|tokens_per_expert)/(?P<t>{_LAYER}[/:_ ]{_EXPERT})(?:[/_ ](?:{_LOAD}))?", _expert),
    (rf"moe/(?P<t>load_balancing_loss_{_LAYER})", _aux_loss),
    (rf"(?:\w+/)?(?P<t>(?:attn|attention)_(?P<what>entropy|logit)/{_LAYER}/head[._]?(?P<e>\d{{1,4}}))", _head),
)
_TENSOR = r"(?P<t>(?:.*[./])?\w*(?:weight|bias|kernel|gamma|beta|embeddings?)(?:_\d+|:\d+)?)"
_HISTOGRAMS = _compiled(
    (
        r"(?P<of>grad|params|updates)/hist/(?P<t>.+)",
        lambda match: CheckpointPlace(_TARGETS[match["of"]], without_wrappers(match["t"]), ""),
    ),
    (rf"(?P<of>{_ANY})/(?P<t>.+)", lambda match: CheckpointPlace(_TARGETS[match["of"]], without_wrappers(match["t"]), "")),
    (
        r"(?P<t>.+)[/._](?P<of>grads?|gradients?|activations?)",
        lambda match: CheckpointPlace(_TARGETS[match["of"]], without_wrappers(match["t"]), ""),
    ),
    (_TENSOR, lambda match: CheckpointPlace(WEIGHTS, without_wrappers(match["t"]), "")),
)
