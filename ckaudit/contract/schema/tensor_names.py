"""What the name of a parameter or module shows about its place and its function in the model."""

import re
from collections.abc import Sequence
from functools import lru_cache

from ckaudit.contract.schema.manifest import AttentionDirection, NoGradient, TensorKind

NAMES = 1 << 17
"""Number of names with cached results: those of one model, of which a mixture of experts has 47,000."""
NORM = re.compile(r"norm|^ln(_?\w{1,3})?$")
EMBEDDING = re.compile(r"embed|(^|_)emb(_|$)|^w[tp]e$|^pos(ition)?s?$")
TOKEN = re.compile(r"(^|_)tokens?$")
ATTENTION = re.compile(r"attn|attention|^(q|k|v|o|qkv|kv|wq|wk|wv|wo|[qkvo]_proj|query|key|value|in_proj|out_proj)$")
MLP = re.compile(r"mlp|ffn|feed_?forward|expert|^ff$|^(fc|w)[123]?$|^linear[123]$|^c_fc$|intermediate|^(gate|up|down)(_proj)?$")
KEY = re.compile(r"^(w?k|key|k_proj|(pos_)?key_proj|to_k|wk|k_lin|lin_k)$")
PROJECTIONS = (("query", "key", "value"), ("q", "k", "v"), ("wq", "wk", "wv"))
"""Words for the query, key and value projections, alone or before a suffix such as `_proj` or `_lin`."""
PROJECTION = re.compile(rf"(?<![a-z0-9])({'|'.join(word for words in PROJECTIONS for word in words[:2])})(?![a-z0-9])")
CROSS = re.compile(r"cross|encdec|encoder_attn|enc_attn|multihead_attn|(^|_)memory|src_attn|context_attn")
ENCODER, DECODER = re.compile(r"encoder|^enc$"), re.compile(r"decoder|^dec$")
STAGE = re.compile(r"^stages?$")
LISTS = ("blocks", "layers")
STACK = re.compile(r"(^|[._/])(layers?|blocks?|h)$")
NO_BLOCK = re.compile(r"norm|^ln|^bn|embed|(^|_)emb(s|_|$)|head|lora|adapter|router|gate|expert|^p[eo]s")
NO_STACK = re.compile(r"(^|_)heads?$|^classifier$|(^|_)projections?$|^time(_?(emb\w*|mlp|proj))?$")
NUMBER = re.compile(r"(?:^|[._/])(?P<depth>\d+)(?=[._/]|$)")
POLICY = re.compile(r"^(actors?|critics?|policy|(policy|value|quantile|q)_(net|network|head|function)(_target)?|v_head)$")
HEAD = re.compile(r"head$|^classifier$|^unembed|^to_logits$|^output$")


SUFFIX = re.compile(r":\d+$")  # of a variable of TensorFlow
BIASES = ("bias", "beta", "b")
WEIGHTS = ("weight", "kernel", "scale", "gamma", "embedding", "w")
"""Last words of the names of a module's parameters, in PyTorch, Flax, Haiku and Keras."""


def name_parts(name: str) -> list[str]:
    """Return the words of a name, from the outermost module to the parameter, in lower case.

    >>> name_parts("params/layers_0/attn/query/kernel"), name_parts("blocks.0.up.bias"), name_parts("dense/bias:0")
    (['params', 'layers_0', 'attn', 'query', 'kernel'], ['blocks', '0', 'up', 'bias'], ['dense', 'bias'])
    """
    return re.split(r"[./]", SUFFIX.sub("", name).lower())


def is_bias(name: str) -> bool:
    """Tell whether a name is that of a bias.

    >>> is_bias("up.bias"), is_bias("attn/in_proj_bias"), is_bias("dense/bias:0"), is_bias("norm/scale")
    (True, True, True, False)
    """
    last = name_parts(name)[-1]
    return last in BIASES or last.startswith("bias") or last.endswith("bias")


def is_opaque_name(name: str) -> bool:
    """Tell whether a name shows neither what a tensor is nor in which kind of module.

    >>> is_opaque_name("t8"), is_opaque_name("blocks.3.up.weight"), is_opaque_name("attn.q")
    (True, False, False)
    """
    words = name_parts(name)
    return words[-1] not in WEIGHTS and not is_bias(name) and _kind_by_words(words) == "other" and not NORM.search(words[-1])


def weight_names_of_bias(bias: str) -> list[str]:
    """Return the names that the weight of a bias's module may have.

    >>> weight_names_of_bias("up.bias")[:2], weight_names_of_bias("dense/bias:0")[1]
    (['up.weight', 'up.kernel'], 'dense/kernel:0')
    """
    suffix = match[0] if (match := SUFFIX.search(bias)) else ""
    bare = bias.removesuffix(suffix)
    place = max(bare.rfind("."), bare.rfind("/")) + 1
    return [f"{bare[:place]}{word}{suffix}" for word in WEIGHTS] if bare[place:].lower() in BIASES else []


def depth_of(name: str) -> int | None:
    """Return the index of the block: the first whole number among the parts of a name, except that of a model in a sequence.

    >>> depth_of("blocks.3.attn.q.weight"), depth_of("head.weight"), depth_of("0.model.encoder.layer.3.attn.q.weight")
    (3, None, 3)
    """
    block = block_of(name)
    if block is not None and block[0].isdecimal() and (last := block.rpartition(".")[2]).isdecimal():
        return int(last)
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


@lru_cache(maxsize=NAMES)
def block_of(name: str) -> str | None:
    """Return the name of the block that contains a tensor or module; None outside the blocks.

    A block is the outermost numbered module, with these exceptions. In a stage it is the numbered module inside. A model that is
    an element of a sequence, with modules that make its batches or take its outputs, is not a block. Neither are elements of a
    list of normalizations, embeddings, adapters, routers or experts, or of a head, a projection or a time embedding, outside of a
    block.

    >>> block_of("encoder.layer.3.attn.q.weight"), block_of("layers.0.blocks.1.mlp.fc1.weight"), block_of("norms.2.weight")
    ('encoder.layer.3', 'layers.0.blocks.1', None)
    >>> block_of("0.model.encoder.layer.3.attn.q.weight"), block_of("0.mlp.1.weight")
    ('0.model.encoder.layer.3', '0')
    """
    numbers = [*NUMBER.finditer(name)]
    if not numbers:
        return None
    chosen, words = numbers[0], re.split(r"[./]", name[: numbers[0].start()].lower())
    if NO_BLOCK.search(words[-1]) or any(NO_STACK.search(word) for word in words):
        return None
    if len(numbers) > 1:
        between = name[chosen.end() : numbers[1].start()].strip("._/").lower()
        if between in LISTS or (STAGE.match(words[-1]) and between) or (not chosen.start() and STACK.search(between)):
            chosen = numbers[1]
    return name[: chosen.end()]


def direction_by_name(name: str) -> AttentionDirection | None:
    """Return the attention direction of a layer from the words of its name; None if they do not show it.

    Self-attention of a part named as a decoder is causal only if there is an encoder, which a single name does not show.

    >>> direction_by_name("decoder.layers.0.encoder_attn"), direction_by_name("bert.encoder.layer.0.attention.self")
    ('cross', 'bidirectional')
    >>> direction_by_name("layer.0") is None
    True
    """
    words = [word for word in re.split(r"[./]", name.lower()) if not word.isdecimal()]
    if any(CROSS.search(word) for word in words):
        return "cross"
    sides = [word for word in words if ENCODER.search(word) or DECODER.search(word)]
    return "bidirectional" if sides and ENCODER.search(sides[-1]) and not DECODER.search(sides[-1]) else None


@lru_cache(maxsize=NAMES)
def no_gradient_by_name(name: str, kind: TensorKind | str) -> NoGradient | None:
    """Return why a tensor's gradient is mathematically zero, from its name; None if the name does not show it.

    A key bias adds the same to all logits of a query, and the softmax cancels it; the same holds for keys of positions (He et al.
    2021).

    >>> no_gradient_by_name("encoder.layer.0.attention.self.key.bias", "attention")
    'key_bias'
    >>> no_gradient_by_name("encoder.layer.0.attention.self.pos_key_proj.bias", "attention")
    'key_bias'
    """
    *words, last = name.lower().replace("/", ".").split(".")
    if last in ("k_bias", "key_bias", "bias_k"):
        return "key_bias" if last != "bias_k" else None
    is_bias = last == "bias" and bool(words) and KEY.search(words[-1]) is not None
    return "key_bias" if is_bias and kind == "attention" else None


@lru_cache(maxsize=NAMES)
def is_of_policy(name: str) -> bool:
    """Tell whether a tensor belongs to a policy or its critic, by the words of its name: such a model makes its own data.

    An action head does not count: it may be trained on examples.

    >>> is_of_policy("mlp_extractor.policy_net.0.weight"), is_of_policy("critic.qf0.0.bias"), is_of_policy("attn.value.weight")
    (True, True, False)
    >>> is_of_policy("action_head.weight")
    False
    """
    return any(POLICY.search(word) for word in name.lower().split("."))


def other_attention_projections(name: str) -> tuple[str, str] | None:
    """Return for a query or key the names of the other of the two and of the value; None for any other tensor.

    >>> other_attention_projections("layer.0.attention.self.query.weight")
    ('layer.0.attention.self.key.weight', 'layer.0.attention.self.value.weight')
    >>> other_attention_projections("h.0.attn.v_proj.weight") is None
    True
    """
    matches = [*PROJECTION.finditer(name)]
    if not matches:
        return None
    match = matches[-1]
    query, key, value = next(words for words in PROJECTIONS if match[0] in words)
    before, after = name[: match.start()], name[match.end() :]
    return f"{before}{key if match[0] == query else query}{after}", f"{before}{value}{after}"


def layer_names(names: Sequence[str]) -> dict[str, str]:
    """Return the layer of each module: layer.<depth>, or the enclosing module if a depth has several.

    >>> layer_names(["blocks.0.attn.probabilities", "blocks.1.self.p", "blocks.1.cross.p"])
    {'blocks.0.attn.probabilities': 'layer.0', 'blocks.1.self.p': 'blocks.1.self', 'blocks.1.cross.p': 'blocks.1.cross'}
    """
    depths = [depth_of(name) for name in names]
    return {
        name: name.rpartition(".")[0] or name if depth is None or depths.count(depth) > 1 else f"layer.{depth}"
        for name, depth in zip(names, depths, strict=True)
    }


def kind_by_name(name: str, shape: Sequence[int]) -> TensorKind:
    """Return a parameter's kind from the words of its name.

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
    if TOKEN.search(parts[-1]) or any(EMBEDDING.search(word) for word in parts[-2:]):
        return "embedding"
    # The innermost word decides: attention.output.dense is attention, intermediate.dense is not.
    for word in reversed(parts):
        if MLP.search(word):
            return "mlp"
        if ATTENTION.search(word):
            return "attention"
    return "other"
