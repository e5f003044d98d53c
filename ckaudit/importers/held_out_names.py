"""Names of what is measured beside the training: scores, returns of episodes, and losses on a test set."""

import re

HELD_OUT = "val|valid|validation|eval|evaluation|dev"
COMPONENT = r"(?:(?:lm|ctc|ce|nll|mlm|total|cross_?entropy|avg|avr|average|mean|batch|minibatch|step|elbo|vae)_)?"
"""What may stand before "loss" in the name of a whole one."""

_SCORE = re.compile(
    rf"(?:ema_)?(?:(?:{HELD_OUT}|test)_)(?:(?:mean|avg|average)_)?(?:acc|accuracy|acc_?1|top_?1(?:_acc(?:uracy)?)?|f1|auc|r2)(?:_score)?"
    r"|acc|accuracy"
    r"|(?:(?:rollout|charts|eval|train|env_runners)_)?(?:ep|episodes?|episodic)_(?:rew|rewards?|returns?)(?:_mean)?"
    r"|eval_mean_reward"
)
_TEST_LOSS = re.compile(rf"(?:test|testing)_{COMPONENT}loss(?:es)?")


def is_score(name: str) -> bool:
    """Tell whether a name, in small letters and with underscores, is that of a score: more is better.

    >>> is_score("val_acc"), is_score("charts_episodic_return"), is_score("train_acc"), is_score("reward")
    (True, True, False, False)
    """
    return _SCORE.fullmatch(name) is not None


def names_test_loss(name: str) -> bool:
    """Tell whether a name, in small letters and with underscores, is that of a loss on a test set.

    >>> names_test_loss("test_loss"), names_test_loss("test_acc")
    (True, False)
    """
    return _TEST_LOSS.fullmatch(name) is not None
