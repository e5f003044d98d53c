"""The healthy trainings that faults and controls change: three to tune thresholds on, two that are only scored.

The two splits share no seed, size, corpus or schedule.
"""

from typing import Literal, get_args

from msgspec.structs import replace

from ckaudit.lab.plan import Cnn, Data, Gpt, Llama, Lstm, Mlp, Optimizer, Plan, Schedule
from ckaudit.lab.specs import Family

Split = Literal["dev", "test"]
SEEDS: dict[Split, tuple[int, ...]] = {"dev": (0, 1, 2), "test": (10, 11)}

_TEXTS = {
    0: Plan(data=Data(corpus="verbs")),
    1: Plan(
        model=Gpt(norm="layer", activation="relu"),
        data=Data(corpus="mixture", batch_size=18, length=112),
        schedule=Schedule(shape="plateau", warmup=40),
    ),
    2: Plan(
        model=Gpt(width=64, depth=4, hidden=176, positions="rope", activation="swiglu", kv_heads=2),
        data=Data(corpus="mixture", tokens="bpe", length=48),
        schedule=Schedule(shape="linear", final=0.0),
    ),
    10: Plan(
        model=Gpt(width=96, depth=4, hidden=384, norm="layer", fused=True),
        data=Data(corpus="letters", batch_size=14, length=80),
        optimizer=Optimizer(peak=1.5e-3, betas=(0.9, 0.98)),
        schedule=Schedule(shape="cosine", warmup=50, final=0.05),
        steps=500,
    ),
    11: Plan(
        model=Gpt(width=96, depth=6, heads=6, hidden=256, positions="rope", activation="swiglu", qk_norm=True, tied=True),
        data=Data(corpus="letters", tokens="bpe", batch_size=20, length=36),
        optimizer=Optimizer(peak=2e-3, weight_decay=0.05),
        schedule=Schedule(shape="plateau", warmup=25, final=0.02, tail=0.3),
        steps=400,
    ),
}
_SIZES: dict[Split, int] = {"dev": 1, "test": 2}


def setting(family: Family, seed: int) -> Plan:
    """Return the healthy training of a family of models under a seed of `SEEDS`.

    Raises:
        KeyError: If no split has this seed.
    """
    text = _TEXTS[seed]
    size = _SIZES[split_of(seed)]
    decay = 0.01 * size
    match family:
        case "gpt":
            plan = text
        case "moe":
            plan = replace(text, model=Gpt(width=48, depth=2, hidden=96, experts=2 + 2 * size))
        case "llama":
            plan = replace(text, model=Llama(depth=1 + size))
        case "lstm":
            plan = replace(text, model=Lstm(width=32 + 32 * size))
        case "mlp":
            data, optimizer = Data(corpus="points", batch_size=64), Optimizer(peak=1e-3 * size, weight_decay=decay)
            plan = replace(text, model=Mlp(depth=2 + size), data=data, optimizer=optimizer)
        case "cnn":
            data, optimizer = Data(corpus="shapes", batch_size=32), Optimizer(peak=4e-3 / size, weight_decay=decay)
            plan = replace(text, model=Cnn(depth=1 + size), data=data, optimizer=optimizer)
    return replace(plan, seed=seed)


def split_of(seed: int) -> Split:
    """Return the split that a seed belongs to."""
    return next(split for split in get_args(Split) if seed in SEEDS[split])
