"""Parser of column names: the data (training, held-out, test), the quantity measured, and the slice of the data."""

import re

from msgspec import Struct

from ckaudit.contract.schema.score_names import HELD_OUT
from ckaudit.importers.other_languages import in_english

TRAIN, VAL, TEST = "train", "val", "test"
DATA_WORDS = {
    **dict.fromkeys(("tr", "trn", "train", "training"), TRAIN),
    **dict.fromkeys(HELD_OUT.split("|"), VAL),
    **dict.fromkeys(("test", "testing"), TEST),
}
"""The data that a word names: training, held-out or test data."""

_DATA = "|".join(DATA_WORDS)
_SLICE = re.compile(rf"({HELD_OUT})/(.+)/((?:(?:lm|cross_?entropy)_?)?loss)", re.IGNORECASE)
_GROUP = re.compile(r"\A(?:(?:epoch|metrics)/|scalars[/_])|(?<=[a-z]_)metrics/", re.IGNORECASE)  # groups without a meaning
_NATS = re.compile(r"[(\[]\s*nats?(?:\s*(?:/|per)\s*tok(?:en)?)?\s*[)\]]", re.IGNORECASE)
_NEW_WORD = re.compile(r"(?<=[a-z])(?=[A-Z][A-Za-z\d])")  # splits valLoss and valPPL, but neither AdamW nor GiB
_GAPS = re.compile(r"[\s./\-()\[\]]+")
_LOSSES = re.compile(r"losses(?=_|$)")
_MEAN = re.compile(r"^(?:avg|average|mean)_(?=.*loss)|(?<=loss)_(?:avg|average|mean)$")
_JOINED = re.compile(rf"^({_DATA})(?=(?:loss|acc|accuracy|ppl)$)")
_DATA_FIRST = re.compile(rf"(?P<data>{_DATA})_(?P<measured>.+)")
_DATA_LAST = re.compile(rf"(?P<measured>(?:.+_)?(?:loss|nll|ce|xent|entropy|ppl|perplexity|acc|accuracy))_(?P<data>{_DATA})")


class ColumnName(Struct, frozen=True):
    """What a column name says, without a group, nats as the unit, or a word for the mean of losses.

    Attributes:
        data_word: The word for the data, in lower case, such as "valid"; empty: none is named.
        measured: The quantity measured, in lower case, with its words joined by underscores.
        slice: The part of the held-out data, as written; empty: all of them.
    """

    data_word: str
    measured: str
    slice: str = ""

    @property
    def data(self) -> str:
        """The data: `TRAIN`, `VAL` or `TEST`; empty: none is named."""
        return DATA_WORDS.get(self.data_word, "")

    @property
    def normal_form(self) -> str:
        """The word for the data followed by the quantity measured, as in "val_loss"."""
        return f"{self.data_word}_{self.measured}" if self.data_word else self.measured


def own_name(header: str) -> str:
    """Return the name of a column in English, without the name of a run before it, as in "run 3 - loss"."""
    return in_english(header.rsplit(" - ", 1)[-1].strip())


def parse_column_name(header: str) -> ColumnName:
    """Parse the name of a column, in any case and with any separators.

    >>> parse_column_name("Loss (train)"), parse_column_name("epoch/avg_val_losses")
    (ColumnName(data_word='train', measured='loss', slice=''), ColumnName(data_word='val', measured='loss', slice=''))
    >>> parse_column_name("valloss").normal_form, parse_column_name("TestAcc").normal_form
    ('val_loss', 'test_acc')
    >>> parse_column_name("eval/books/CrossEntropyLoss").slice, parse_column_name("learningRate [nats]").normal_form
    ('books', 'learning_rate')
    """
    column = own_name(header)
    if match := _SLICE.fullmatch(column):
        return ColumnName(match[1].lower(), match[3].lower(), match[2])
    spelt = _NEW_WORD.sub("_", _GROUP.sub("", _NATS.sub("", column).strip()))
    words = _MEAN.sub("", _LOSSES.sub("loss", _GAPS.sub("_", spelt.lower()).rstrip("_")))
    words = _JOINED.sub(r"\1_", words)
    match = _DATA_LAST.fullmatch(words) or _DATA_FIRST.fullmatch(words)
    return ColumnName(match["data"], match["measured"]) if match else ColumnName("", words)
