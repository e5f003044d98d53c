"""EXP-9: what heads look at, and which do the same."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.experiments.head_entropy import Choosy
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from torch import nn


class CopiedHeads(Choosy):
    """All heads of block 1 start as copies of its first one."""

    def model(self, model: "nn.Module") -> None:
        """Copy the rows of queries, keys and values, and the columns that read them."""
        attention = model.get_submodule("blocks.1.attn")
        for name in ("q", "k", "v"):
            weight = attention.get_parameter(f"{name}.weight").data.unflatten(0, (attention.heads, -1))  # (H, D/H, D)
            weight[1:] = weight[:1]
        weight = attention.get_parameter("out.weight").data.unflatten(1, (attention.heads, -1))  # (D, H, D/H)
        weight[:, 1:] = weight[:, :1]


@experiment(
    "EXP-9",
    look=("train_loss_raw", "head_similarity", "head_kind_share", "attention.*.sampled_qk_grid_32x32_per_head"),
    steps=(10, 50, 100, 150, 200, 250),
)
def head_redundancy() -> Mapping[str, Change]:
    """What heads look at, and which of them do the same.

    In a healthy training the heads of a layer start alike, because all are even, and grow apart. In the other arm the four
    heads of block 1 start as copies of one. Their gradients are the same too, so that they stay copies for ever: four
    heads at the price of four, worth one.

    Look at the similarity of each head to its nearest neighbour: it starts near 1 in both arms, and only its course tells them
    apart. The maps below show the first sequence of the last step, queries downwards and keys to the right: a line beside the
    diagonal is a head of neighbours, a column at the left one of the first token.
    """
    return {"healthy": Choosy(), "copied heads": CopiedHeads()}
