"""What one unit of a foreign log's loss is, by the words of everything that was logged beside it."""

import re
from collections.abc import Iterable

from ckaudit.contract.schema.manifest import LossKind

_REWARDS = re.compile(r"(^|_)(rewards?|advantages?)(_|$)")
_OTHER_LOSS = re.compile(
    r"(^|_)(box|bbox|cls|obj|dfl|giou|iou|dice|seg|mask|rpn|mse|mae|rmse|l1|l2|huber|smooth_l1|elbo|kld?|recon(struction)?"
    r"|contrastive|infonce|nce|clip|triplet|margin|cosine|adv(ersarial)?|gan|d|g|disc(riminator)?|gen(erator)?"
    r"|actor|critic|policy|value|q|td|vf|pg|dpo|kto|ctc|diffusion|noise|score|physics|pde)_loss(_|$)"
    r"|^(train_|val_|eval_)?(mse|mae|rmse|elbo)$"
)
_OF_PICTURES = re.compile(r"(^|_)(m?ap_?\d*|map50(_95)?|miou|iou|psnr|ssim|fid|dice)(_|$)")
_OF_TOKENS = re.compile(r"(^|_)(ppl|perplexity|bpb|bpc|lm_loss|mlm_loss|(num_|n_|total_|consumed_)?tokens?(_seen|_per_.*)?)(_|$)")
_UNLIKE_LETTERS = re.compile(r"[^a-z0-9]+")


def loss_kind_of_names(names: Iterable[str]) -> LossKind | None:
    """Return what one unit of a log's loss is by the names of all that was logged; None where they do not tell.

    Rewards, scores of pictures, and parts of the loss that are no cross entropy of tokens are the sign of another loss, whatever
    else was counted: training by reinforcement counts tokens too. Perplexities and counts of tokens are the sign of text.

    >>> loss_kind_of_names(["step", "loss", "reward", "num_tokens"]), loss_kind_of_names(["train/box_loss", "metrics/mAP50(B)"])
    ('other', 'other')
    >>> loss_kind_of_names(["step", "loss", "tokens"]), loss_kind_of_names(["step", "loss", "accuracy"])
    ('nats_per_token', None)
    """
    plain = [_UNLIKE_LETTERS.sub("_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()).strip("_") for name in names]
    if any(pattern.search(name) for name in plain for pattern in (_REWARDS, _OTHER_LOSS, _OF_PICTURES)):
        return "other"
    return "nats_per_token" if any(_OF_TOKENS.search(name) for name in plain) else None
