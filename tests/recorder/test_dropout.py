"""The largest dropout of a model, as its modules say it."""

import pytest
import torch
from msgspec import UNSET
from torch import nn

from ckaudit.recorder import Recorder
from ckaudit.recorder.hooks.train_mode import dropout_facts, rate_of


class Attention(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("module", "rate"),
    [
        (nn.Dropout(0.3), 0.3),
        (nn.Dropout(1), 1.0),
        (nn.Dropout2d(0.2), 0.2),
        (nn.AlphaDropout(0.4), 0.4),
        (nn.MultiheadAttention(4, 2, dropout=0.15), 0.15),
        (nn.LSTM(2, 2, 2, dropout=0.25), 0.25),
        (nn.Dropout(0.0), 0.0),
        (nn.LayerNorm(4), 0.0),
        (nn.Sequential(nn.Dropout(0.3)), 0.0),
        (Attention(attention_dropout=0.1), 0.1),
        (Attention(attn_pdrop=0.1, resid_pdrop=0.2), 0.2),
        (Attention(dropout_p=0.1), 0.1),
        (Attention(drop_prob=0.1), 0.1),
        (Attention(drop_path_rate=0.1), 0.1),
        (Attention(layerdrop=0.1), 0.1),
        (Attention(dropout=None, p=0.7), 0.0),
        (Attention(drop_threshold=0.9, drop_last=True, dropout_layers=1, dropped=0.5, backdrop_color=0.5), 0.0),
    ],
)
def test_a_module_says_what_it_drops(module, rate):
    assert rate_of(module) == rate


def test_the_largest_rate_is_told_with_the_first_module_that_has_it():
    block = nn.TransformerEncoderLayer(4, 2, dropout=0.1)
    block.dropout2.p = 0.6
    block.dropout1.p = 0.6
    assert dropout_facts(nn.ModuleList([nn.Dropout(0.5), block])) == {"dropout": 0.6, "dropout_module": "1.dropout1"}
    assert dropout_facts(nn.Dropout(0.5)) == {"dropout": 0.5, "dropout_module": "model"}
    assert dropout_facts(nn.Linear(2, 2)) == {"dropout": 0.0, "dropout_module": UNSET}


class DropsByFunction(nn.Linear):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


class DropsByAttribute(nn.Linear):
    dropout = 0.0

    def forward(self, x):
        return nn.functional.dropout(super().forward(x), self.dropout, self.training)


def test_a_rate_that_only_the_code_holds_is_not_known():
    unknown = {"dropout": UNSET, "dropout_module": UNSET}
    assert dropout_facts(nn.Sequential(DropsByFunction(2, 2))) == unknown
    assert dropout_facts(nn.Sequential(DropsByAttribute(2, 2)))["dropout"] == 0.0
    assert dropout_facts(nn.Sequential(DropsByFunction(2, 2), nn.Dropout(0.1)))["dropout"] == 0.1


def test_a_resume_tells_that_dropout_was_taken_out(tmp_path, manifest):
    def start(rate, **more):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(rate))
        Recorder(model, tmp_path, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **more).close()
        return manifest(tmp_path)

    assert (start(0.7).dropout, start(0.7).dropout_module) == (0.7, "1")
    again = start(0.0, start_step=5)
    assert (again.dropout, again.dropout_module) == (0.0, UNSET)


def test_what_a_model_drops_is_not_for_the_user_to_say(tmp_path):
    with pytest.raises(TypeError, match="is called dropout;"):
        Recorder(nn.Linear(2, 2), tmp_path, dropout=0.1)
