"""The names by which programs log scores, of which more is better: accuracies, R2, and what a policy's episode is worth.

Names are given in small letters and with underscores.
"""

import re
from collections.abc import Sequence

HELD_OUT = "val|valid|validation|eval|evaluation|dev|heldout|held_out|holdout"
"""Words for data that is not trained on, as parts of a regular expression; a test set is called otherwise."""
EPISODE = "ep|episodes?|episodic"
RETURN_OF = "(?:rew|rewards?|returns?)"
_ACCURACY = r"acc(?:uracy)?|acc_?1|top_?1(?:_acc(?:uracy)?)?"

ACCURACY = re.compile(rf"(?:^|_)(?:{_ACCURACY})(?:_score)?$")
_RANKING = r"(?:roc_)?auc(?:_roc)?|auroc|c_?index|concordance(?:_index)?"
RANKING = re.compile(rf"(?:^|_)(?<!pr_)(?:{_RANKING})(?:_score)?$")
"""Scores of an order, of which a random one has a half: not the area under precision over recall."""
EXPLAINED_VARIANCE = re.compile(r"(?:^|_)r2(?:_score)?$")
_MEAN = "mean|avg|average"
EPISODE_RETURN = re.compile(
    rf"(?:^|_)(?:{EPISODE}|cumulative)_{RETURN_OF}(?:_mean)?$"
    rf"|(?:^|_)(?:(?:{_MEAN})_)?(?:(?:{EPISODE})_?)?(?:returns?|ret)$|^(?:eval_)?(?:{_MEAN})_rewards?$|^(?:eval|test)_rewards?$"
    r"|^critic_rewards_mean$|^(?:total|running)_rewards?$"
)
"""Names of what an episode is worth, as Stable-Baselines3, CleanRL, RLlib, Tianshou, verl and loops of one's own write them."""
LESS_IS_BETTER = re.compile(
    r"(?:^|[^a-z0-9])(?:err(?:or)?s?|loss|[rn]?mse|rmsle|s?mape|mae|nll|ppl|perplexity|bp[bc]|[wct]er|fid|kid|lpips|kld?|divergence"
    r"|distance|dist|regret|brier|ece|chamfer|hausdorff|epe|cost|violations?|residual)(?:$|[^a-z0-9])",
    re.IGNORECASE,
)
"""Words of what somebody measures of a model and wants little of."""
SCORE_WORDS = frozenset("acc accuracy auc bleu correct f1 iou map precision recall return reward rewards rouge".split())  # noqa: SIM905
"""Words that make a name that of some score, where no loss is named beside them."""
_SCORE = re.compile(
    rf"(?:ema_)?(?:{HELD_OUT}|test)_(?:(?:{_MEAN})_)?(?:{_ACCURACY}|f1|{_RANKING}|r2)(?:_score)?"
    r"|acc|accuracy"
    rf"|(?:(?:rollout|charts|eval|train|env_runners)_)?(?:{EPISODE})_{RETURN_OF}(?:_mean)?"
    rf"|(?:eval_)?(?:{_MEAN})_rewards?|(?:eval|test|total|running)_rewards?|critic_rewards_mean|val_core_.{{1,100}}_mean@\d{{1,4}}|(?:(?:eval|test|train)_)?(?:(?:{_MEAN})_)?(?:(?:{EPISODE})_?)?(?:returns?|ret)"
)


def is_score(name: str) -> bool:
    """Tell whether the name alone makes a quantity a score of the model: on data that is held out, or of an episode.

    >>> is_score("val_acc"), is_score("heldout_auc"), is_score("charts_episodic_return"), is_score("test_reward")
    (True, True, True, True)
    >>> is_score("total_reward"), is_score("train_acc"), is_score("reward")
    (True, False, False)
    """
    return _SCORE.fullmatch(name) is not None


def held_out_accuracies(names: Sequence[str]) -> list[int]:
    """Return the positions of accuracies on data that is held out: those whose names say so, or all where none does.

    >>> held_out_accuracies(["accuracy", "val_accuracy"]), held_out_accuracies(["accuracy", "f1"])
    ([1], [0])
    """
    accuracies = [place for place, name in enumerate(names) if ACCURACY.search(name)]
    held_out = [place for place in accuracies if re.match(rf"(?:ema_)?(?:{HELD_OUT}|test)_", names[place])]
    return held_out or accuracies
