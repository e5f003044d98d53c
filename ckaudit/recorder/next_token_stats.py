"""What a model expects of the next token: entropy, mass of the likeliest, and how far two expectations are apart."""

import torch
from msgspec import Struct
from torch import Tensor

TOP = 10
POSITIONS = 64
AT_ONCE = 2**22  # probabilities held at a time: 16 MiB


class NextTokenStats(Struct, frozen=True, kw_only=True):
    """The distributions at some positions.

    Attributes:
        entropy: Mean over positions, in nats.
        top_mass: Mean probability of the likeliest tokens together, in %.
        kept: Log-probabilities at sampled positions, shape (P, V), on the device of the logits.
    """

    entropy: float
    top_mass: float
    kept: Tensor


def outlook(
    logits: Tensor, counted: Tensor | None = None, *, top: int = TOP, positions: int = POSITIONS
) -> NextTokenStats | None:
    r"""Return what logits say of the next token.

    $$H = -\tfrac1N \sum_n \sum_v p_{nv} \log p_{nv}, \qquad m = \tfrac{100}{N} \sum_n \sum_{v \in \mathrm{top}_k(n)} p_{nv}$$

    Args:
        logits: Shape (..., V).
        counted: Which positions count, shape (...); default: all.
        top: How many of the likeliest tokens make the mass (catalogue M24 leaves k open; 10 is the field's usual choice).
        positions: Most positions whose log-probabilities are kept, evenly strided.

    Returns:
        The outlook; None where no position counts.
    """
    rows = logits.detach().reshape(-1, logits.shape[-1])
    places = torch.arange(len(rows)) if counted is None else counted.reshape(-1).nonzero()[:, 0]
    places = places.to(rows.device)
    if not rows.numel() or not len(places):
        return None
    entropy, mass = 0.0, 0.0
    # A copy of all logits of a large vocabulary might be one too many.
    for part in torch.split(places, max(1, AT_ONCE // rows.shape[1])):
        logs = rows[part].float().log_softmax(-1)
        shares = logs.exp()
        # A logit of minus infinity has probability 0, and 0 log 0 is 0.
        entropy -= float((shares * logs.where(shares > 0, 0.0)).sum(dtype=torch.float64))
        mass += float(shares.topk(min(top, rows.shape[1]), dim=-1).values.sum(dtype=torch.float64))
    kept = rows[places[:: -(-len(places) // positions)]].float().log_softmax(-1)
    return NextTokenStats(entropy=entropy / len(places), top_mass=100 * mass / len(places), kept=kept)


def divergence(now: Tensor, before: Tensor) -> float | None:
    r"""Return how far the distributions of now are from those before, mean over positions, in nats (M25).

    $$D = \tfrac1P \sum_n \sum_v p_{nv} (\log p_{nv} - \log q_{nv})$$

    Args:
        now: Log-probabilities $\log p$, shape (P, V).
        before: Log-probabilities $\log q$, shape (P, V).

    Returns:
        The divergence, infinite where something impossible became possible; None where the shapes differ.
    """
    if now.shape != before.shape:
        return None
    shares = now.double().exp()
    terms = shares * (now.double() - before.double())
    return float(terms.where(shares > 0, 0.0).sum()) / now.shape[0]
