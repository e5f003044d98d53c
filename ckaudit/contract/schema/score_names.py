"""Names under which programs log scores, for which higher is better: accuracies, R2, and episode returns of a policy.

Names are given in lower case with underscores.
"""

import re
from collections.abc import Sequence

HELD_OUT = "val|valid|validation|eval|evaluation|dev|heldout|held_out|holdout"
"""Words for held-out data, as parts of a regular expression; a test set has other names."""
EPISODE = "ep|episodes?|episodic"
RETURN_OF = "(?:rew|rewards?|returns?)"
_ACCURACY = r"acc(?:uracy)?|acc_?1|top_?1(?:_acc(?:uracy)?)?"

ACCURACY = re.compile(rf"(?:^|_)(?:{_ACCURACY})(?:_score)?$")
_RANKING = r"(?:roc_)?auc(?:_roc)?|auroc|c_?index|concordance(?:_index)?"
RANKING = re.compile(rf"(?:^|_)(?<!pr_)(?:{_RANKING})(?:_score)?$")
"""Ranking scores, which are 0.5 for a random order; not the area under the precision-recall curve."""
_OF_PICTURES = r"psnr(?:_db)?|ssim"
EXPLAINED_VARIANCE = re.compile(r"(?:^|_)r2(?:_score)?$")
_MEAN = "mean|avg|average"
_LAST = r"(?:last_)?\d{1,4}"
EPISODE_RETURN = re.compile(
    rf"(?:^|_)\d{{0,4}}(?:{EPISODE}|cumulative)_{RETURN_OF}(?:_mean)?$"
    rf"|(?:^|_)(?:(?:{_MEAN})_)?(?:(?:{EPISODE})_?)?(?:returns?|ret)(?:_mean)?$"
    rf"|^(?:(?:eval|train)_)?(?:{_MEAN})_rewards?(?:_{_LAST}(?:_?(?:{EPISODE}))?)?$|^(?:eval|test)_rewards?$"
    r"|^mean_median_rewards?$|^critic_rewards_mean$|^(?:reward_total_rewards?_mean|(?:total|running)_rewards?)$|(?:^|_)eprewmean$|^(?:ep|episode)_scores?$"
)
"""Names of episode returns in OpenAI's baselines, rllab, Stable-Baselines3, CleanRL, RLlib, Tianshou, Dreamer, skrl, verl and
custom training loops."""
SUCCESS_RATE = re.compile(r"(?:^|_)success_rate$")
LESS_IS_BETTER = re.compile(
    r"(?:^|[^a-z0-9])(?:err(?:or)?s?|loss|[rn]?mse|rmsle|s?mape|mae|nll|ppl|perplexity|bp[bc]|[wct]er|fid|kid|lpips|kld?|divergence"
    r"|distance|dist|regret|brier|ece|chamfer|hausdorff|epe|cost|violations?|residual)(?:$|[^a-z0-9])",
    re.IGNORECASE,
)
"""Words for quantities of a model that should be small."""
SCORE_WORDS = frozenset("acc accuracy auc bleu correct f1 iou map precision recall return reward rewards rouge".split())  # noqa: SIM905
"""Words that mark a name as a score, unless it also names a loss."""
_WHERE = "rollout|charts|eval|evaluation|exploration|train|test|env_runners|sampler_results|environment"
_OVER_CLASSES = "overall|macro|micro|weighted"
_HELD_OUT_SCORE = re.compile(
    rf"(?:ema_)?(?:{HELD_OUT}|test)_(?:(?:{_MEAN}|{_OVER_CLASSES})_)?(?:{_ACCURACY}|f1|{_RANKING}|r2|{_OF_PICTURES})(?:_(?:score|{_OVER_CLASSES}))?"
)
_SCORE = re.compile(
    rf"{_HELD_OUT_SCORE.pattern}"
    rf"|acc|accuracy|{_OF_PICTURES}|(?:(?:test|eval|rollout)_)?success_rate"
    rf"|(?:(?:{_WHERE})_)?(?:(?:{_MEAN})_(?:{_LAST}_?)?)?(?:{EPISODE}|cumulative)_{RETURN_OF}(?:_mean)?|(?:(?:{_WHERE})_)?eprewmean"
    rf"|(?:(?:eval|train)_)?(?:{_MEAN})_rewards?(?:_{_LAST}(?:_?(?:{EPISODE}))?)?|(?:eval|test|total|running)_rewards?"
    r"|mean_median_rewards?|critic_rewards_mean|reward_total_rewards?_mean|(?:ep|episode)_scores?|val_core_.{1,100}_mean@\d{1,4}"
    rf"|(?:(?:{_WHERE})_)?(?:(?:{_MEAN})_)?(?:(?:raw|true|undiscounted)_)?(?:(?:{_MEAN})_)?(?:(?:{EPISODE})_?)?(?:returns?|ret)(?:_mean)?"
)


def is_held_out_score(name: str) -> bool:
    """Tell whether a name is that of a score on held-out data, for which higher is better.

    >>> is_held_out_score("eval_overall_f1"), is_held_out_score("accuracy"), is_held_out_score("eval_rewards")
    (True, False, False)
    """
    return _HELD_OUT_SCORE.fullmatch(name) is not None


def is_score(name: str) -> bool:
    """Tell whether the name alone marks a score of the model: on held-out data, or of an episode.

    >>> is_score("val_acc"), is_score("heldout_auc"), is_score("charts_episodic_return"), is_score("test_reward")
    (True, True, True, True)
    >>> is_score("eval_overall_f1"), is_score("eval_f1_macro"), is_score("eval_f2_macro")
    (True, True, False)
    >>> is_score("total_reward"), is_score("train_acc"), is_score("reward")
    (True, False, False)
    >>> is_score("mean_100_episode_reward"), is_score("rollout_return"), is_score("raw_average_return"), is_score("max_return")
    (True, True, True, False)
    """
    return _SCORE.fullmatch(name) is not None


def held_out_accuracies(names: Sequence[str]) -> list[int]:
    """Return the positions of accuracies on held-out data: those whose names show it, or all if none does.

    >>> held_out_accuracies(["accuracy", "val_accuracy"]), held_out_accuracies(["accuracy", "f1"])
    ([1], [0])
    """
    accuracies = [place for place, name in enumerate(names) if ACCURACY.search(name)]
    held_out = [place for place in accuracies if re.match(rf"(?:ema_)?(?:{HELD_OUT}|test)_", names[place])]
    return held_out or accuracies
