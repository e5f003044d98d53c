"""Rotary positions (Su et al. 2021)."""

import torch
from torch import Tensor


def rotate(x: Tensor, *, base: float = 10_000.0) -> Tensor:
    r"""Turn each pair of channels of queries or keys (B, H, T, C) by an angle that grows with the position.

    Channels i and i + C/2 of position t turn by $t \cdot base^{-2i/C}$.
    """
    half = x.shape[-1] // 2
    speeds = base ** (-torch.arange(half) / half)  # (C/2,)
    angles = torch.arange(x.shape[-2])[:, None] * speeds  # (T, C/2)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)
