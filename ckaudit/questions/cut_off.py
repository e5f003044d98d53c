"""Attention or MLP that is cut off from the loss, or never updated, by what is found of its tensors."""

from ckaudit.causes.cause import Findings
from ckaudit.run.tensors import TensorTable

CUT_OFF = (
    "dead_parameter",
    "zero_gradients",
    "starved_branch",
    "barely_moving",
    "layer_not_contributing",
    "missing_in_optimizer",
    "frozen_parameter",
)
"""Rules whose findings name tensors ("blocks.1.attn.q.weight"), or the branch of a block ("blocks.1 attention")."""


def cut_off(found: Findings, table: TensorTable, kind: str) -> str:
    """Return in words the first finding that names this kind of branch; nothing where none does.

    Args:
        found: Findings that are more than a note.
        table: Knows the kinds of tensors.
        kind: "attention" or "mlp".
    """
    for each in sorted(found.all, key=lambda each: each.first_step or 0):
        places = [place for place in (each.where, *each.also) if place] if each.name in CUT_OFF else []
        if any(place.endswith(kind) or table.kind(place) == kind for place in places):
            since = "" if each.first_step is None else f" from step {each.first_step}"
            return f"{each.code}{since}: {each.message}"
    return ""
