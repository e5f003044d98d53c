"""What the name of a parameter or a module says of its place in the model and of its part in it."""

import re
from collections.abc import Sequence

from ckaudit.contract.manifest import TensorKind

NORM = re.compile(r"norm|^ln(_?\w{1,3})?$")
EMBEDDING = re.compile(r"embed|(^|_)emb(_|$)|^w[tp]e$|^pos(ition)?s?$")
ATTENTION = re.compile(r"attn|attention|^(q|k|v|o|qkv|kv|wq|wk|wv|wo|[qkvo]_proj|query|key|value|in_proj|out_proj)$")
MLP = re.compile(r"mlp|ffn|feed_?forward|expert|^ff$|^(fc|linear|w)[123]?$|^c_fc$|intermediate|^(gate|up|down)(_proj)?$")
HEAD = re.compile(r"head$|^classifier$|^unembed|^to_logits$|^output$")


def depth_of(name: str) -> int | None:
    """Return the index of the block: the first whole number among the parts of a name.

    >>> depth_of("blocks.3.attn.q.weight"), depth_of("head.weight")
    (3, None)
    """
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def layer_names(names: Sequence[str]) -> dict[str, str]:
    """Return the layer that each module stands for: layer.<depth>, or the module around it where a depth has several.

    >>> layer_names(["blocks.0.attn.probabilities", "blocks.1.self.p", "blocks.1.cross.p"])
    {'blocks.0.attn.probabilities': 'layer.0', 'blocks.1.self.p': 'blocks.1.self', 'blocks.1.cross.p': 'blocks.1.cross'}
    """
    depths = [depth_of(name) for name in names]
    return {
        name: name.rpartition(".")[0] or name if depth is None or depths.count(depth) > 1 else f"layer.{depth}"
        for name, depth in zip(names, depths, strict=True)
    }


def kind_by_name(name: str, shape: Sequence[int]) -> TensorKind:
    """Return a parameter's part in the model by the words of its name.

    A layer named `gate` that narrows is a router; one that widens belongs to a gated MLP.

    >>> kind_by_name("blocks.0.attn.q.weight", (8, 8)), kind_by_name("blocks.0.ln_1.weight", (8,))
    ('attention', 'norm')
    """
    parts = [part for part in name.lower().split(".") if not part.isdecimal()]
    words = parts[:-1] or parts
    if NORM.search(words[-1]):
        return "norm"
    if "router" in words or (words[-1] == "gate" and len(shape) == 2 and shape[0] < shape[1]):
        return "router"
    if depth_of(name) is None and HEAD.search(words[-1]):
        return "head"
    return _kind_by_words(parts)


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
