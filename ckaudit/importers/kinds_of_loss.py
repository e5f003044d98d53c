"""What the names of losses tell: which is the only one, which belong to a policy, which are adversarial.

The loss of a policy, of values or of a temporal difference has data and targets that change with the policy. A generator and a
discriminator are trained against each other. Neither kind of loss need fall.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ckaudit.contract.schema.loss_names import (
    DISCRIMINATOR,
    GENERATOR,
    OF_THE_WHOLE_GAN,
    PAIRED_LOSS_TERMS,
    adversarial_sides,
    loss_part_of,
)
from ckaudit.contract.schema.manifest import LossKind
from ckaudit.contract.schema.score_names import EPISODE, EPISODE_RETURN, HELD_OUT, RETURN_OF
from ckaudit.importers.column_name import DATA_WORDS, TRAIN, own_name
from ckaudit.importers.other_languages import in_english

COMPONENT = r"(?:(?:lm|ctc|ce|nll|mlm|total|cross_?entropy|avg|avr|average|mean|batch|minibatch|step|elbo|vae)_)?"
"""Prefixes that the name of a whole loss may have before "loss"."""
NO_LETTERS = re.compile(r"[^a-z0-9]+")
REWARDS = re.compile(r"(^|_)(rew|rewards?|advantages?)(_|$)")
_OTHER_LOSS = re.compile(
    r"(^|_)(box|bbox|cls|obj|dfl|giou|iou|dice|seg|mask|rpn|mse|mae|rmse|l1|l2|huber|smooth_l1|elbo|kld?|recon(struction)?"
    r"|contrastive|infonce|nce|clip|triplet|margin|cosine|adv(ersarial)?|gan|d|g|disc(riminator)?|gen(erator)?"
    r"|actor|critic|policy|value|q|td|vf|pg|dpo|kto|ctc|diffusion|noise|score|physics|pde)_loss(_|$)"
    r"|^(train_|training_|val_|valid_|validation_|eval_)?(mse|mae|rmse|elbo|huber|smooth_l1|l1|l2|bce)(_trn|_train|_val)?$"
)
_OF_PICTURES = re.compile(r"(^|_)(m?ap_?\d*|map50(_95)?|miou|iou|psnr|ssim|fid|dice)(_|$)")
_OF_TOKENS = re.compile(
    r"(^|_)(ppl|perplexity|bpb|bpc|mfu|lm_loss|mlm_loss|(num_|n_|total_|consumed_)?tokens?(_seen|_per_.*)?)(_|$)"
)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_HELD_OUT = frozenset(word for word, data in DATA_WORDS.items() if data != TRAIN)
_VALIDATION = re.compile(rf"(?:{HELD_OUT})_(.+)|(.+)_(?:{HELD_OUT})")
_TRAIN = re.compile(r"(?:train|training|tr|fit)_(?=.)")
_MEASURE = re.compile(r"(?:mse|rmse|mae|huber|smooth_l1|l1|l2|bce|elbo)")
_TRAIN_WORDS = frozenset({"train", "training", "tr"})
_AT_THE_END = re.compile(r"_(?:train|training|tr)$")
_POLICY = re.compile(
    r"(?:.+_)?(?:policy(?:_gradient)?|pg|pi|actor|critic|value(?:_function)?|vf?|(?<!cross_)entropy|ent_coef|alpha|surrogate)\d?_loss(?:_.+)?"
    r"|(?:.+_)?loss_(?:policy|pg|pi|actor|critic|value|vf|(?<!cross_)entropy)(?:_.+)?"
)
_DIFFERENCE = re.compile(r"(?:.+_)?(?:td|q|qf|bellman)\d?_loss|(?:.+_)?loss_(?:td|q|qf|bellman)\d?")
_ROLLOUTS = re.compile(
    rf"(^|_)({EPISODE}|cumulative)_(?:{RETURN_OF}|ret)(_|$)|^critic_rewards_mean$|(^|_)episodes?_rewards?_(mean|max|min)(_|$)"
    r"|(^|_)eprewmean$|(^|_)rollout_returns?(_|$)|(^|_)(mean|avg|average)_returns?(_|$)"
    r"|^(test|eval|best)_rewards?$|(^|_)rewards?_(zero_)?std(_|$)|(^|_)completions?_(mean_|min_|max_)?length(_|$)"
)
_OF_A_POLICY = re.compile(r"^ep$|(?:^|_)(?:eps|epsilon|exploration(?:_rate)?)$")
_EPISODE = re.compile(r"(?:i_|n_|num_)?episodes?(?:_(?:num(?:ber)?|no|id|idx|index|count))?")
_PARTS = frozenset(
    """
    aux auxiliary kl kld reg regularization regularisation regularizer penalty gp z router routing balance balancing moe
    commit commitment codebook vq feature fm best min max std prev previous last ema
    """.split()  # noqa: SIM905  one word a line would take five times the room
)
LOSS_WORDS = frozenset({"loss", "losses", "nll", "crossentropy", "logloss", "objective", "cost", "bpb", "bpc"})
_ERROR_WORDS = frozenset({"mse", "rmse", "mae", "huber", "bce", "elbo"})
_COUNTED_ERRORS = frozenset({"err", "error"})
_TIME_WORDS = frozenset({"time", "reader", "duration", "sec", "seconds", "ms"})
_SUM = re.compile(r"(?:total|sum)_loss|l(?:oss)?_(?:total|sum)|loss")
_TERM = re.compile(r"l(?:oss)?_([a-z0-9]\w{0,40})|([a-z0-9]\w{0,40})_loss")
_NO_TERM = frozenset(
    """
    total sum scale weight weights coef avg average mean smooth smoothed train training epoch step batch
    """.split()  # noqa: SIM905
)
_ADVERSARIAL = frozenset("adv adversarial gan g d gen generator dis disc discriminator critic".split())  # noqa: SIM905


class OnlyLoss(Struct, frozen=True):
    """The only loss of a log, with a name that no other column has.

    Attributes:
        train: Position of the training loss.
        val: Position of the validation loss of the same name; None where there is none.
    """

    train: int
    val: int | None = None


class AdversarialPair(Struct, frozen=True):
    """Positions of the losses of a generator and of its discriminator."""

    generator: int
    discriminator: int


def may_be_a_loss(name: str) -> bool:
    """Tell whether a name begins or ends with the word loss."""
    form = _form(name)
    return form.endswith("_loss") or form.startswith("loss_")


def may_be_a_cost(name: str) -> bool:
    """Tell whether a name has another word for a loss, in training or in validation.

    >>> may_be_a_cost("val/mse"), may_be_a_cost("objective"), may_be_a_cost("fit_err"), may_be_a_cost("lr")
    (True, True, True, False)
    """
    return bool(words_in(name) & (LOSS_WORDS | _ERROR_WORDS | _COUNTED_ERRORS))


def words_in(name: str) -> set[str]:
    """Return the words of a name, in lower case."""
    return set(re.split(r"[^a-z0-9]+", CAMEL.sub(" ", in_english(name)).lower()))


def looks_like_a_loss(name: str) -> bool:
    """Tell whether an unknown name may be that of a training loss.

    >>> looks_like_a_loss("step objective"), looks_like_a_loss("val_cost"), looks_like_a_loss("reader_cost")
    (True, False, False)
    """
    words = words_in(name)
    if words & _TIME_WORDS or {"batch", "cost"} <= words or words & _HELD_OUT or is_of_policy(name):
        return False
    return bool(words & (LOSS_WORDS | _ERROR_WORDS)) or {"cross", "entropy"} <= words


def is_of_policy(name: str) -> bool:
    """Tell whether a name is that of a term of a policy's loss.

    >>> is_of_policy("train/policy_gradient_loss"), is_of_policy("value_loss"), is_of_policy("cross_entropy_loss")
    (True, True, False)
    """
    return bool(_POLICY.fullmatch(_form(name)))


def logs_rollouts(headers: Iterable[str]) -> bool:
    """Tell whether a log holds rewards of a policy's own rollouts: those of episodes, or their spread among completions.

    Rewards alone may be those of pairs written by others, as in DPO.

    >>> logs_rollouts(["train/loss", "rollout/ep_rew_mean"]), logs_rollouts(["loss", "reward", "reward_std"])
    (True, True)
    >>> logs_rollouts(["episode", "loss", "reward"]), logs_rollouts(["loss", "reward"]), logs_rollouts(["pg", "rm", "ret"])
    (True, False, True)
    >>> logs_rollouts(["loss", "rewards/chosen", "rewards/margins"]), logs_rollouts(["loss", "mean reward"])
    (False, True)
    >>> logs_rollouts(["reward", "epsilon", "loss"]), logs_rollouts(["reward", "kl", "actor loss"])
    (True, True)
    """
    plain = [NO_LETTERS.sub("_", CAMEL.sub("_", header).lower()).strip("_") for header in headers]
    if any(map(EPISODE_RETURN.search, plain)):
        return True
    of_a_policy = any(map(_is_of_a_policy, plain))
    by_episodes = of_a_policy and any(REWARDS.search(name) for name in plain)
    both = any(pair <= {*plain} for pair in ({"reward", "return"}, {"rm", "ret"}))  # OpenRLHF's, in full and abbreviated
    return by_episodes or both or any(_ROLLOUTS.search(name) for name in plain)


def may_tell_of_rollouts(name: str) -> bool:
    """Tell whether a name is that of a reward, of a counter of episodes, of an exploration rate or of a policy's loss."""
    form = _form(name)
    return _is_of_a_policy(form) or REWARDS.search(form) is not None


def _is_of_a_policy(form: str) -> bool:
    return bool(_EPISODE.fullmatch(form) or _POLICY.fullmatch(form) or _OF_A_POLICY.search(form))


def episode_counter(names: Sequence[str]) -> int | None:
    """Return the position of the name of an episode counter, or None where there is none.

    >>> episode_counter(["Episode", "reward"]), episode_counter(["i_episode"]), episode_counter(["episode_reward", "ep"])
    (0, 0, None)
    """
    return next((place for place, name in enumerate(names) if _EPISODE.fullmatch(_form(in_english(name)))), None)


def losses_named_after_policy(names: Sequence[str]) -> list[int]:
    """Return the positions of losses with names of a policy or its values.

    Beside a generator and a discriminator, a loss of Q belongs to a third network (InfoGAN).

    >>> logs = ["step", "td_loss"], ["actor_loss", "critic_loss"], ["g_loss", "critic_loss"]
    >>> [losses_named_after_policy(names) for names in logs]
    [[1], [0, 1], []]
    """
    pair = adversarial_pair(names)
    apart = () if pair is None else (pair.generator, pair.discriminator)
    return [
        position
        for position, name in enumerate(names)
        if position not in apart and (is_of_policy(name) or (not apart and _DIFFERENCE.fullmatch(_form(name))))
    ]


def adversarial_pair(names: Sequence[str]) -> AdversarialPair | None:
    """Return the positions of a generator's and a discriminator's loss, or None unless there is exactly one of each.

    Two letters are such names only if there is no third name of one letter.

    >>> adversarial_pair(["step", "train/g_loss", "train/d_loss"])
    AdversarialPair(generator=1, discriminator=2)
    >>> adversarial_pair(["Loss_D", "Loss_G"]), adversarial_pair(["d_loss", "loss"])
    (AdversarialPair(generator=1, discriminator=0), None)
    >>> adversarial_pair(["D", "D_gp", "G", "G_adv"]), adversarial_pair(["d", "e", "f", "g"])
    (AdversarialPair(generator=2, discriminator=0), None)
    >>> adversarial_pair(["gan_loss", "mean_disc_loss"]), adversarial_pair(["G_GAN", "G_L1", "D_real+fake"])
    (AdversarialPair(generator=0, discriminator=1), AdversarialPair(generator=0, discriminator=2))
    """
    forms = [_TRAIN.sub("", _form(name)) for name in names]
    letters = {form for form in forms if len(form) == 1}
    if letters == {"d", "g"} and forms.count("d") == forms.count("g") == 1:
        return AdversarialPair(forms.index("g"), forms.index("d"))
    generators = [position for position, form in enumerate(forms) if GENERATOR.fullmatch(form)]
    generators = generators or [position for position, form in enumerate(forms) if form == OF_THE_WHOLE_GAN]
    others = [position for position, form in enumerate(forms) if DISCRIMINATOR.fullmatch(form)]
    return AdversarialPair(generators[0], others[0]) if len(generators) == len(others) == 1 else None


def loss_parts(names: Sequence[str]) -> dict[str, int]:
    """Return the positions of the terms of a loss that are worth comparing, by catalogue name.

    These are pairs of known terms; without any, all terms beside their sum.

    >>> loss_parts(["loss", "kl_loss", "recon_loss"]), loss_parts(["loss", "kl"])
    ({'loss_part/reconstruction': 2, 'loss_part/kl': 1}, {})
    >>> loss_parts(["total_loss", "loss_cls", "loss_mask", "loss_scale"]), loss_parts(["box_loss", "cls_loss"])
    ({'loss_part/cls': 1, 'loss_part/mask': 2}, {})
    """
    if logs_rollouts(names) or losses_named_after_policy(names):
        return {}
    places = {part: place for place, name in enumerate(names) if (part := loss_part_of(name))}
    if (pair := adversarial_pair(names)) is not None:
        places |= {"generator": pair.generator, "discriminator": pair.discriminator}
    paired = {f"loss_part/{part}": places[part] for pair in PAIRED_LOSS_TERMS if set(pair) <= set(places) for part in pair}
    forms = [_TRAIN.sub("", _form(name)) for name in names]
    if paired or not any(map(_SUM.fullmatch, forms)):
        return paired
    terms = {match[1] or match[2]: place for place, form in enumerate(forms) if (match := _TERM.fullmatch(form))}
    apart = _PARTS | _HELD_OUT | _ADVERSARIAL | _NO_TERM
    terms = {term: place for term, place in terms.items() if not {*term.split("_")} & apart}
    return {f"loss_part/{term}": place for term, place in terms.items()} if len(terms) > 1 else {}


def have_adversarial_losses(names: Iterable[str]) -> bool:
    """Tell whether a log's names include adversarial losses."""
    names = list(names)
    return adversarial_pair(names) is not None or adversarial_sides(names) is not None


def only_loss(names: Sequence[str]) -> OnlyLoss | None:
    """Return the only loss of a log by a name that ends in `_loss`, ignoring parts of a loss; None: there is none, or several.

    Where no name has the word loss, the only loss is the one error measure of training and validation, else the one name with
    another word for a loss.

    >>> only_loss(["step", "train/mse", "val/mse", "train/acc"]), only_loss(["mse", "val_mse", "mae", "val_mae"])
    (OnlyLoss(train=1, val=2), None)
    >>> only_loss(["t", "objective"]), only_loss(["ep", "fit_err", "dev_err"]), only_loss(["nll", "cost"]), only_loss(["err"])
    (OnlyLoss(train=1, val=None), OnlyLoss(train=1, val=2), None, None)
    >>> only_loss(["step", "diffusion_loss", "aux_loss", "val_diffusion_loss"])
    OnlyLoss(train=1, val=3)
    >>> only_loss(["mse_loss", "l1_loss"]), only_loss(["kl_loss"]), only_loss(["pretext_loss", "value_loss"])
    (None, None, None)
    """
    if losses_named_after_policy(names):
        return None
    if not any(map(may_be_a_loss, names)):
        return _only_measure([_form(name) for name in names]) or _only_cost(names)
    forms = {position: form for position, name in enumerate(names) if (form := _form(name)).endswith("_loss")}
    words = {position: set(form.split("_")) for position, form in forms.items()}
    if any(parts & _ADVERSARIAL for parts in words.values()):
        return None
    whole = [position for position, parts in words.items() if not parts & (_HELD_OUT | _PARTS)]
    if len(whole) != 1:
        return None
    stem = _TRAIN.sub("", forms[whole[0]])
    held_out = (position for position, name in enumerate(names) if _validated(_form(name)) == stem)
    return OnlyLoss(whole[0], next(held_out, None))


def _only_measure(forms: Sequence[str]) -> OnlyLoss | None:
    """Return the one training error measure that also has a validation column, or None where there are several or none."""
    held_out = {_validated(form): position for position, form in enumerate(forms) if _MEASURE.fullmatch(_validated(form))}
    plain = {position: _AT_THE_END.sub("", _TRAIN.sub("", form)) for position, form in enumerate(forms)}
    measured = {position: stem for position, stem in plain.items() if _MEASURE.fullmatch(stem)}
    if len(measured) != 1:
        return None
    ((position, stem),) = measured.items()
    return OnlyLoss(position, held_out[stem]) if stem in held_out else None


def _only_cost(names: Sequence[str]) -> OnlyLoss | None:
    """Return the one column with another word for a loss, and its held-out twin; a column called error must have such a twin."""
    apart = _PARTS | _ADVERSARIAL | {"elbo"}  # a bound is to be maximized unless its sign is flipped
    costs = [place for place, name in enumerate(names) if looks_like_a_loss(name) and not words_in(name) & apart]
    if not costs:
        counted = [place for place, name in enumerate(names) if words_in(name) & _COUNTED_ERRORS]
        costs = [place for place in counted if not words_in(names[place]) & _HELD_OUT and held_out_twin(names[place], names)]
    if len(costs) != 1:
        return None
    twin = held_out_twin(names[costs[0]], names)
    return OnlyLoss(costs[0], names.index(twin) if twin else None)


def held_out_twin(name: str, names: Sequence[str]) -> str:
    """Return the name of the same quantity measured in validation, empty where there is none.

    >>> held_out_twin("train/mse", ["step", "train/mse", "val/mse"]), held_out_twin("cost", ["cost", "lr"])
    ('val/mse', '')
    """
    stem = _AT_THE_END.sub("", _TRAIN.sub("", _form(name)))
    return next((other for other in names if _validated(_form(other)) == stem), "")


def train_and_val_columns(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the two columns named only by a word for training and one for held-out data, or None where one is missing.

    >>> train_and_val_columns(["epoch", "train", "valid"]), train_and_val_columns(["epoch", "train"])
    (('train', 'valid'), None)
    """
    trained = next((name for name in names if _form(name) in _TRAIN_WORDS), "")
    held_out = next((name for name in names if _form(name) in _HELD_OUT), "")
    return (trained, held_out) if trained and held_out else None


def _validated(form: str) -> str:
    """Return the quantity that a validation measured, empty where the name does not belong to a validation."""
    match = _VALIDATION.fullmatch(form)
    return (match[1] or match[2]) if match else ""


def _form(name: str) -> str:
    return NO_LETTERS.sub("_", CAMEL.sub("_", own_name(name)).lower()).strip("_")


def loss_kind_of_names(names: Iterable[str]) -> LossKind | None:
    """Return the kind of a log's loss from all logged names, or None where they do not tell.

    Rewards, image scores, and losses other than a cross entropy of tokens show that the loss is of another kind, even beside
    token counts: reinforcement learning counts tokens too. Perplexities and token counts indicate text.

    >>> loss_kind_of_names(["step", "loss", "reward", "num_tokens"]), loss_kind_of_names(["train/box_loss", "metrics/mAP50(B)"])
    ('other', 'other')
    >>> loss_kind_of_names(["step", "loss", "tokens"]), loss_kind_of_names(["step", "loss", "accuracy"])
    ('nats_per_token', None)
    """
    names = list(names)
    plain = [NO_LETTERS.sub("_", CAMEL.sub("_", name).lower()).strip("_") for name in names]
    of_no_text = (REWARDS, _OTHER_LOSS, _OF_PICTURES)
    if any(pattern.search(name) for name in plain for pattern in of_no_text) or adversarial_sides(names):
        return "other"
    return "nats_per_token" if any(_OF_TOKENS.search(name) for name in plain) else None
