"""What a file name says about the numbers in the file: that they are losses, and on which data, or rewards of episodes."""

import re

from msgspec import Struct

from ckaudit.contract.schema.score_names import SCORE_WORDS
from ckaudit.importers.column_name import DATA_WORDS, TRAIN
from ckaudit.importers.kinds_of_loss import CAMEL, NO_LETTERS
from ckaudit.importers.names import catalogue_name, recognise_columns
from ckaudit.importers.other_languages import in_english

MAX_NAME = 255
"""Maximum number of characters of a name that are looked at; no current file system allows more."""

_WRITTEN_TOGETHER = re.compile(rf"({'|'.join(DATA_WORDS)})?(loss)(?:es)?(\d{{0,6}})")
_VERSION = re.compile(r"v\d{1,3}|\d{1,20}")
_ENDINGS = frozenset("txt text csv tsv json log out dat npy npz pth pt pkl list lst gz zst".split())  # noqa: SIM905
_ABOUT_A_LOSS = frozenset(
    """
    weight weights scale scaler scaling grad grads gradient gradients norm norms time times lr rate function functions fn
    landscape surface contour diff difference delta ratio var variance rank ranks index indices idx id ids mask masks matrix
    map hessian curvature sensitivity class classes sample samples cum cumulative cumulated accumulated
    """.split()  # noqa: SIM905  one word a line would take five times the room
)
"""Words for other properties of a loss than its course: its weights, its gradient, its landscape, a number per class."""
_LOST_ELSEWHERE = frozenset("packet path power profit stop".split())  # noqa: SIM905
"""Things that are lost outside of a training."""
_COUNTED_PASSES = frozenset("epoch epochs step steps iter iters iteration iterations batch batches update updates".split())  # noqa: SIM905
_LOG_WORDS = frozenset("log logs history curve curves metrics results stats".split())  # noqa: SIM905


class NamedLoss(Struct, frozen=True):
    """The loss that a file is named after.

    Attributes:
        column: A name for its numbers that the catalogue knows; empty where they belong to several kinds of data.
        data: The kinds of data in the name, in order: train, val, test.
    """

    column: str
    data: tuple[str, ...] = ()

    @property
    def catalogue_name(self) -> str:
        """The catalogue name of the loss; of several kinds of data, training takes precedence."""
        return "val_loss" if self.data and TRAIN not in self.data else "train_loss_raw"


def loss_named_by_file(name: str) -> NamedLoss | None:
    """Return the loss that a file is named after, or None where the name has none, or only a part of one.

    >>> loss_named_by_file("train_losses.npy.txt"), loss_named_by_file("run3-val-loss.txt")
    (NamedLoss(column='train_loss', data=('train',)), NamedLoss(column='val_loss', data=('val',)))
    >>> loss_named_by_file("train_loss_Ns20_ep50_cosine.pth.txt"), loss_named_by_file("trainValLosses2.csv")
    (NamedLoss(column='train_loss', data=('train',)), NamedLoss(column='', data=('train', 'val')))
    >>> [loss_named_by_file(name) for name in ("weights.npy", "kl_loss.txt", "loss_D.csv", "loss_weights.txt", "packet_loss.csv")]
    [None, None, None, None, None]
    """
    words = words_in_file_name(name)
    data = tuple(dict.fromkeys(DATA_WORDS[word] for word in words if word in DATA_WORDS))
    wanted = NamedLoss("", data).catalogue_name
    if "loss" not in words:
        ends = ("_".join(words[begin:]) for begin in range(len(words)))
        end = next((end for end in ends if catalogue_name(end) == wanted), "")
        return NamedLoss(end if len(data) < 2 else "", data) if end else None
    place = len(words) - 1 - words[::-1].index("loss")
    before, after = words[:place], words[place + 1 :]
    if not _is_whole_loss(_without_data_and_versions(before), _without_data_and_versions(after)):
        return None
    return NamedLoss(_column_name([*before, "loss"], data) if len(data) < 2 else "", data)


def is_of_rewards(name: str) -> bool:
    """Tell whether a file is named after rewards, and not after their loss, their weights or their function.

    >>> [is_of_rewards(name) for name in ("rewards.csv", "training_rewards_ddqn.txt", "episode_reward.log", "reward_weights.csv")]
    [True, True, True, False]
    """
    words = set(words_in_file_name(name))
    return bool(words & {"reward", "rewards"}) and not words & (_ABOUT_A_LOSS | {"loss", "model", "models", "shaping"})


def names_a_training_log(name: str) -> bool:
    """Tell whether a file name says that the file is a training log, but not what its numbers are.

    >>> names_a_training_log("train_log.txt"), names_a_training_log("trainingHistory.csv"), names_a_training_log("train.csv")
    (True, True, False)
    """
    words = set(words_in_file_name(name, endings=frozenset()))
    return any(DATA_WORDS.get(word) == TRAIN for word in words) and bool(words & _LOG_WORDS)


def words_in_file_name(name: str, *, endings: frozenset[str] = _ENDINGS) -> list[str]:
    """Return the words of a file name, in lower case and without its endings; "losses" becomes "loss".

    >>> words_in_file_name("TrainLosses.npy.txt"), words_in_file_name("valloss3.csv")
    (['train', 'loss'], ['val', 'loss', '3'])
    """
    stem = in_english(name[:MAX_NAME])
    words = [word for word in NO_LETTERS.split(CAMEL.sub("_", stem).lower()) if word]
    while len(words) > 1 and words[-1] in endings:
        words.pop()
    parted = [match.groups() if (match := _WRITTEN_TOGETHER.fullmatch(word)) else (word,) for word in words]
    return [word for group in parted for word in group if word]


def _without_data_and_versions(words: list[str]) -> list[str]:
    """Return the words that name neither data nor a version."""
    return [word for word in words if word not in DATA_WORDS and not _VERSION.fullmatch(word)]


def _is_whole_loss(before: list[str], after: list[str]) -> bool:
    """Tell whether the words around "loss" mean the course of a whole loss: not a part, a policy's loss or a weight of a loss."""
    words = {*before, *after}
    if words & (_ABOUT_A_LOSS | _LOST_ELSEWHERE | SCORE_WORDS):
        return False
    if "per" in after and not set(after[after.index("per") + 1 :][:1]) & _COUNTED_PASSES:
        return False
    names = ["_".join([*before, "loss"]), *(f"{word}_loss" for word in after)]
    return all("train_loss_raw" in recognise_columns([name]) for name in names)


def _column_name(words: list[str], data: tuple[str, ...]) -> str:
    """Return the longest end of a name that is known as a loss on its data, else the word for the data and "loss"."""
    wanted = NamedLoss("", data).catalogue_name
    words = [word for word in words if not _VERSION.fullmatch(word)]
    ends = ("_".join(words[begin:]) for begin in range(len(words)))
    return next((end for end in ends if wanted in recognise_columns([end])), "_".join([*data, "loss"]))
