"""Names of logged quantities: those of the catalogue, and those of other programs.

All logged names together also show what kind of loss a run has.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

from ckaudit.contract.schema.scalars import NAMES
from ckaudit.contract.schema.score_names import EPISODE_RETURN, HELD_OUT, SCORE_WORDS, is_score
from ckaudit.errors import UsageError
from ckaudit.importers.column_name import DATA_WORDS, TEST, TRAIN, VAL, own_name, parse_column_name
from ckaudit.importers.kinds_of_loss import (
    COMPONENT,
    LOSS_WORDS,
    episode_counter,
    logs_rollouts,
    loss_parts,
    losses_named_after_policy,
    only_loss,
    words_in,
)
from ckaudit.wording import first_names

SLICE = "slice_val_loss/"
MEAN_REWARD = "microbench_score/mean_reward"
_REWARD = frozenset({"reward", "rewards", "rew"})
REWARD_OF_COMPLETIONS = _REWARD | {"train/reward", "objective/scores", "objective/rlhf_reward"}  # as TRL writes them
RETURN = "microbench_score/episode_return"
SHORT_NAMES = {"loss": "train_loss_raw", "lr": "learning_rate", "grad_norm": "grad_global_norm", "tokens": "tokens_seen"}
MAX_SHOWN = 48
MAX_COPIED = 400
_SPEED = "perf_|speed_|time_|throughput_|curr_|(?:avg_)?ips_"
_TRAINING = "|".join(word for word, data in DATA_WORDS.items() if data == TRAIN)
_PATTERNS = {
    "step": (
        r"(?:train(?:er|ing)?_)?(?:global_)?steps?|it|itr|(?:n_)?iter(?:ation)?s?|(?:num_)?updates?|num_steps"
        r"|optimizer_step|_step|time_batch"
    ),
    "train_loss_raw": (
        rf"(?:reduced_)?(?:(?:{_TRAINING})_)?{COMPONENT}(?:cross_?entropy_?)?loss(?:_(?:step|epoch))?"
        rf"|loss_train(?:ing)?_total|(?:(?:{_TRAINING})_)?(?:loss|l)_(?:total|sum|vae|elbo|pix)(?:_loss)?|(?:{_TRAINING})_epoch_loss"
        rf"|(?:(?:{_TRAINING})_)?(?:nll|ce|xent|(?:token_)?cross_?entropy)|j_?(?:{_TRAINING})"
    ),
    "train_ppl": rf"(?:(?:{_TRAINING})_)?(?:ppl|perplexity)",
    "val_ppl": rf"(?:{HELD_OUT})_(?:ppl|perplexity)",
    "val_loss": (
        rf"(?:ema_)?(?:{HELD_OUT})_(?:epoch_)?{COMPONENT}(?:cross_?entropy_?)?loss(?:_epoch|_total)?"
        rf"|(?:{HELD_OUT})_(?:nll|ce|xent|(?:(?:token|language)_)?cross_?entropy)|j_?(?:{HELD_OUT})"
    ),
    "learning_rate": (
        r"(?:train_|opt_|optim_|optimizer_|charts_|actor_|act_)?(?:lr|learning_rate)(?:_(?:(?:param_)?group|pg)_?0)?"
        r"|lr_(?:decoupled_?)?(?:adamw?|lionw?|sgdw?)(?:_pg1|_group0)?"
    ),
    "grad_global_norm": (
        r"(?:train_|optim_|actor_)?(?:total_|global_)?(?:grad|gradient)_(?:global_|2_0_)?norm(?:_total)?|g_?norm"
        r"|l2_norm_grad_global|gradnorm"
    ),
    "tokens_seen": r"(?:train_|throughput_)?(?:num_|n_|total_|consumed_|num_input_)?tokens(?:_seen)?|time_token",
    "tokens_per_update": r"tokens_per_(?:update|step|batch)|batch_size_in_tokens",
    "tokens_per_sec": (
        rf"(?:train_|{_SPEED})?(?:tokens|tok)(?:_per)?_(?:sec|second|s)(?:_(?:per_)?(?:gpu|device|chip))?"
        r"|(?:throughput_)?tps|perf_throughput"
    ),
    "samples_per_sec": (
        rf"(?:train_|{_SPEED})?"
        r"(?:samples?|images?|imgs?|instances?|ins|examples?|rows|sequences?|seqs|sents?|frames)(?:_?per_?|_)(?:seconds?|secs?|s)"
    ),
    "time": r"_timestamp|wall_(?:time|clock)|timestamp",
    "step_time": (
        r"throughput_duration|(?:s|secs?|seconds)_per_(?:step|it|iter|iteration)|perf_time_per_step"
        r"|(?:avg_)?batch_cost_s(?:ec)?|train_step_timing_in_s"
    ),
    "mfu": r"throughput_(?:device_)?mfu|perf_mfu_actor",
    "gpu_mem_used": (
        r"max_mem|peak_memory_(?:active|alloc)|(?:(?:max|peak|gpu|cuda|device)_)*(?:mem|memory|vram)(?:_(?:used|usage|allocated|reserved))?_[gm]i?b"
    ),
}
_ALIASES = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}
_PERCENT = frozenset({"throughput/mfu"})  # as levanter writes it
_BYTES = re.compile(r"(?:mem|memory|vram)(?:[\W_][a-z]+)?[\W_]+([gm]i?b)\W*|(max)[\W_]mem|(peak)_memory")
_BYTES_IN = {"gb": 1e9, "gib": 2.0**30, "mb": 1e6, "mib": 2.0**20}
_BYTES_IN |= {"max": 2.0**20, "peak": 2.0**30}  # torchvision's `max mem` and torchtune's `peak_memory_active` give no unit
_OF_VERBS = re.compile(r"loss_((?:ir)?regular)|((?:ir)?regular)_loss")
_WHOLE_LOSS = re.compile(rf"{COMPONENT}loss")
_OF_LOSS_OR_SCORE = ("train_loss_raw", "train_loss_ema", "val_loss")


def shorten_name(text: str) -> str:
    """Return another program's name, shortened to fit a sentence."""
    return writable(text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}...")


def name_to_copy(text: str) -> str:
    """Return another program's name for copying: complete, unless it is longer than any line."""
    return writable(text if len(text) <= MAX_COPIED else f"{text[: MAX_COPIED - 3]}...")


def writable(text: str) -> str:
    r"""Return text that can be encoded as UTF-8: JSON may hold lone surrogates.

    >>> print(writable("a\ud800"))
    a\ud800
    """
    return text.encode(errors="backslashreplace").decode()


def list_names(names: Sequence[str], *, max_names: int = 6, shorten: Callable[[str], str] = shorten_name) -> str:
    """Return names as a list for a sentence, each shortened.

    >>> list_names(["a", "b", "c"], max_names=2)
    'a, b and 1 more'
    """
    return first_names([*map(shorten, names)], max_names)


def catalogue_name(header: str) -> str | None:
    """Return the catalogue name of a column, or None where its name is unknown.

    Case, dots, slashes, brackets and blanks do not matter; nor does the name of a run before it, as in "run 3 - loss", nor nats
    as the unit after it.

    >>> catalogue_name("train/lm_loss"), catalogue_name("eval/books/CrossEntropyLoss"), catalogue_name("score")
    ('train_loss_raw', 'slice_val_loss/books', None)
    >>> catalogue_name("trainLoss"), catalogue_name("Loss (train)"), catalogue_name("Train NLL (nats/token)")
    ('train_loss_raw', 'train_loss_raw', 'train_loss_raw')
    >>> catalogue_name("val_losses"), catalogue_name("nll/val"), catalogue_name("avg_val_loss"), catalogue_name("val_loss_mean")
    ('val_loss', 'val_loss', 'val_loss', 'val_loss')
    >>> catalogue_name("Loss/total"), catalogue_name("val/epoch_loss"), catalogue_name("lr/group_0"), catalogue_name("lr/group_1")
    ('train_loss_raw', 'val_loss', 'learning_rate', None)
    >>> catalogue_name("epoch/val_loss"), catalogue_name("val_metrics/loss"), catalogue_name("scalars_train_return")
    ('val_loss', 'val_loss', 'microbench_score/train_return')
    >>> catalogue_name("loss/irregular"), catalogue_name("eval_regular_loss")
    ('loss_irregular', 'slice_val_loss/regular')
    >>> catalogue_name("mem_MB"), catalogue_name("GPU memory used [GiB]"), catalogue_name("memory")
    ('gpu_mem_used', 'gpu_mem_used', None)
    """
    column = own_name(header)
    family, _, label = column.partition("/")
    if family in NAMES and (label or "/" not in column):
        return column
    name = parse_column_name(header)
    if name.slice:
        return f"{SLICE}{name.slice}"
    if is_score(name.normal_form):
        return f"microbench_score/{name.normal_form}"
    if name.data != TEST and (match := _OF_VERBS.fullmatch(name.measured)):
        return f"{SLICE if name.data == VAL else 'loss_'}{match[1] or match[2]}"
    return next((known for known, alias in _ALIASES.items() if alias.fullmatch(name.normal_form)), None)


def only_test_loss(headers: Sequence[str]) -> int | None:
    """Return the position of a test loss if no other held-out loss is logged; None: there is none.

    >>> only_test_loss(["epoch", "Train Loss", "Test Loss"]), only_test_loss(["loss", "val_loss", "test_loss"])
    (2, None)
    """
    if any(catalogue_name(header) == "val_loss" for header in headers):
        return None
    return next((position for position, header in enumerate(headers) if is_test_loss(header)), None)


def is_test_loss(header: str) -> bool:
    """Tell whether a name is that of a loss on a test set.

    >>> is_test_loss("Loss/test"), is_test_loss("ELBO-loss (test)"), is_test_loss("testLoss"), is_test_loss("test time")
    (True, True, True, False)
    """
    name = parse_column_name(header)
    return name.data == TEST and _WHOLE_LOSS.fullmatch(name.measured) is not None


def is_named_like_a_score(header: str) -> bool:
    """Tell whether a name is that of a score, where higher is better.

    >>> is_named_like_a_score("val_acc"), is_named_like_a_score("mean reward"), is_named_like_a_score("reward_loss")
    (True, True, False)
    """
    words = words_in(header)
    return bool(words & SCORE_WORDS) and not words & LOSS_WORDS


def factor_of(header: str) -> float:
    """Return the factor that converts the values of a column to the catalogue's unit.

    >>> factor_of("throughput/mfu"), factor_of("gpu_mem_MB"), factor_of("memory (GiB)") == 2**30
    (0.01, 1000000.0, True)
    """
    column = header.rsplit(" - ", 1)[-1].strip()
    if match := _BYTES.search(column.lower()):
        return _BYTES_IN[match[1] or match[2] or match[3]]
    return 0.01 if column in _PERCENT else 1.0


def slices_of(names: Iterable[str]) -> list[str]:
    """Return the labels of the slices that have a loss among catalogue names, sorted.

    >>> slices_of(["val_loss", "slice_val_loss/web", "slice_val_loss/books"])
    ['books', 'web']
    """
    return sorted(name.removeprefix(SLICE) for name in names if name.startswith(SLICE))


def recognise_columns(headers: Sequence[str]) -> dict[str, list[int]]:
    """Return for each catalogue name the positions of the columns that may hold it.

    Columns of a policy's loss are excluded (`policy_losses`); where no column has a common name of a training loss, the only loss
    in the log is used.

    >>> recognise_columns(["episode", "reward", "steps"]), recognise_columns(["episode", "reward", "total_reward"])
    ({'step': [2], 'microbench_score/episode_return': [1]}, {'microbench_score/total_reward': [2]})
    """
    positions: dict[str, list[int]] = {}
    for position, header in enumerate(headers):
        if name := catalogue_name(header):
            positions.setdefault(name, []).append(position)
    if logs_rollouts(headers):
        positions.pop("train_loss_raw", None)
        positions |= reward_columns(headers, positions)
    elif are_rewards_alone(headers, positions):
        positions |= reward_columns(headers, positions)
    elif "train_loss_raw" not in positions and (lone := only_loss(headers)):
        positions["train_loss_raw"] = [lone.train]
        if lone.val is not None:
            positions.setdefault("val_loss", [lone.val])
    if "val_loss" not in positions and (tested := only_test_loss(headers)) is not None:
        positions["val_loss"] = [tested]
    return positions | {name: [position] for name, position in loss_parts(headers).items()}


def are_rewards_alone(names: Sequence[str], known: Collection[str]) -> bool:
    """Tell whether a log holds a reward and no loss: a training on pairs of answers, whose rewards are no returns, logs its loss.

    >>> are_rewards_alone(["iteration", "reward"], ["step"]), are_rewards_alone(["reward", "dpo_loss"], [])
    (True, False)
    """
    has_loss = {"train_loss_raw", "val_loss"} & {*known} or any(words_in(name) & LOSS_WORDS for name in names)
    return mean_reward(names) is not None and not has_loss


def reward_columns(headers: Sequence[str], known: Iterable[str]) -> dict[str, list[int]]:
    """Return the position of a reward by catalogue name: the episode return where episodes are counted, else a mean reward.

    Beside a known episode return, `reward` is that of a step.
    """
    if episode_counter(headers) is None or not any(name.lower() in _REWARD for name in headers):
        known_returns = any(EPISODE_RETURN.search(name.partition("/")[2]) for name in known)
        return {} if (reward := mean_reward(headers)) is None or known_returns else {MEAN_REWARD: [reward]}
    if any(EPISODE_RETURN.search(name.partition("/")[2]) for name in known):
        return {}
    return {RETURN: [place for place, name in enumerate(headers) if name.lower() in _REWARD]}


def may_be_a_reward(name: str) -> bool:
    """Tell whether a name may be that of an episode's or a completion's reward."""
    return name.lower() in REWARD_OF_COMPLETIONS


def mean_reward(headers: Sequence[str]) -> int | None:
    """Return the position of the mean reward of a policy's completions, or None where no name says so.

    >>> mean_reward(["loss", "reward", "reward_std"]), mean_reward(["objective/kl", "objective/scores"]), mean_reward(["loss"])
    (1, 1, None)
    """
    return next((place for place, name in enumerate(headers) if name.lower() in REWARD_OF_COMPLETIONS), None)


def policy_losses(headers: Sequence[str]) -> list[int]:
    """Return the positions of columns that are a policy's loss, by their names or as a training loss beside its rewards.

    The data and the targets of a policy's loss change with the policy, so neither its fall nor its rise says how the training
    goes. Such a column is taken only where it holds NaN or infinity, which is an illness of any loss.

    >>> policy_losses(["train/loss", "rollout/ep_rew_mean"]), policy_losses(["loss", "reward"]), policy_losses(["td_loss"])
    ([0], [], [0])
    """
    named = losses_named_after_policy(headers)
    if not logs_rollouts(headers):
        return named
    lone = only_loss(headers)
    beside = {position for position, header in enumerate(headers) if catalogue_name(header) == "train_loss_raw"}
    return sorted({*named, *beside, *([lone.train] if lone else [])})


def parts_of_loss(headers: Sequence[str], prefix: str) -> list[int]:
    """Return the positions of the parts of a loss with a prefix such as `train/`, or only that of the whole loss if it is there.

    A detector with a one-to-many and a one-to-one head has parts of both (om and oo).

    >>> parts_of_loss(["train/box_loss", "train/cls_loss", "val/box_loss"], "train/")
    [0, 1]
    >>> parts_of_loss(["train/box_om", "train/box_oo", "val/box_om"], "train/")
    [0, 1]
    """
    endings = ("_loss", "_om", "_oo")
    whole = [position for position, name in enumerate(headers) if name == f"{prefix}loss"]
    return whole or [position for position, name in enumerate(headers) if name.startswith(prefix) and name.endswith(endings)]


def resolve_columns(columns: Mapping[str, str], headers: Sequence[str]) -> dict[str, int]:
    """Return the position of the column that the user mapped to each catalogue name.

    Raises:
        UsageError: Where a name is not in the catalogue, or the file has no such column.
    """
    positions = {}
    for name, header in columns.items():
        full = SHORT_NAMES.get(name, name)
        if full.partition("/")[0] not in NAMES | {"step", "time"}:
            raise UsageError(
                f"the catalogue has no name {shorten_name(name)!r}", hint=_nearest(name, [*SHORT_NAMES, *sorted(NAMES)])
            )
        if header not in headers:
            raise UsageError(
                f"{shorten_name(name)} is to come from {shorten_name(header)!r}, which is not there",
                hint=_nearest(header, headers),
            )
        if full in _OF_LOSS_OR_SCORE and is_named_like_a_score(header):
            raise UsageError(
                f"{shorten_name(header)} reads like a score, of which more is better: as {name} its rise would be an illness",
                hint="Name the column of the loss itself; a score is read as in --map microbench_score/NAME=COLUMN.",
            )
        positions[full] = list(headers).index(header)
    return positions


def _nearest(name: str, candidates: Sequence[str]) -> str:
    near = get_close_matches(name, candidates, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(map(name_to_copy, near))}?"
    return f"There is {list_names(candidates, shorten=name_to_copy)}." if candidates else ""
