"""How much a model drops while it trains: the largest probability of its dropout modules, and whose it is."""

import re
from typing import Any

from msgspec import UNSET
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

# What modules without a dropout module of their own call it: `attention_dropout`, `dropout_p`, `attn_pdrop`, `drop_path_rate`.
RATE = re.compile(r"(\w*_)?p?(layer)?drop(out|_?path)?(_(p|prob|rate|probability))?")


def rate_of(module: nn.Module) -> float:
    """Return the probability with which a module itself drops values in training mode, its parts aside; 0: it drops none."""
    held = vars(module)
    if isinstance(module, _DropoutNd):
        rates = [held.get("p", 0.0)]
    else:
        rates = [value for name, value in held.items() if type(value) is float and RATE.fullmatch(name)]
    return max((float(rate) for rate in rates if 0 < rate <= 1), default=0.0)


def dropout_facts(model: nn.Module) -> dict[str, Any]:
    """Return the largest rate of all modules, and the first module that has it, as facts of `run.json`."""
    rates = {name: rate_of(module) for name, module in model.named_modules()}
    largest = max(rates, key=rates.__getitem__)
    return {"dropout": rates[largest], "dropout_module": (largest or "model") if rates[largest] else UNSET}
