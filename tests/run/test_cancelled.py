import numpy as np
import pytest

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.run.cancelled_gradients import cancelled, left_out, never_applied, unexplained_zero_gradients, waiting_factors
from ckaudit.run.column_builder import DTYPES
from ckaudit.run.series import Series, single
from ckaudit.run.tensors import TensorTable

KEY = "layers.0.attn.k_proj"


def series(**columns):
    values = np.array([*columns.values()], float).T
    steps = np.arange(1, len(values) + 1)
    return Series("gradient_norm", "1", steps, tuple(columns), values, np.ones(values.shape, bool))


def types(*names):
    return series(**{f"activations/{place}": [DTYPES.index(name)] for place, name in enumerate(names)})


@pytest.mark.parametrize(("kind", "expected"), [("float32", False), ("bfloat16", True), ("float16", True)])
def test_half_precision_leaves_more_of_a_sum_that_cancels(kind, expected):
    gradient = series(**{"conv.weight": [1.0, 2.0], "conv.bias": [1e-3, 2e-3]})
    assert ("conv.bias" in cancelled(gradient, TensorTable({}), types("float32", kind))) is expected


def test_a_bias_that_has_a_gradient_once_does_not_cancel():
    gradient = series(**{"conv.weight": [1.0, 1.0], "conv.bias": [1e-9, 0.1]})
    assert cancelled(gradient, TensorTable({})) == frozenset()


def test_a_bias_is_not_excused_by_a_weight_without_gradient():
    gradient = series(**{"conv.weight": [0.0, 0.0], "conv.bias": [0.0, 0.0]})
    assert (cancelled(gradient, TensorTable({})), left_out(gradient, TensorTable({}))) == (frozenset(), [])


def test_a_bias_of_which_a_loss_takes_the_difference_cancels_exactly():
    """Two towers of the same weights: the loss is of the distance between their outputs, and each bias is in both."""
    gradient = series(**{"fc.weight": [1.0, 1.0], "fc.bias": [0.0, 0.0]})
    by_autograd = TensorTable({"fc.bias": TensorFacts(backward="AddmmBackward0")})
    assert cancelled(gradient, by_autograd) == {"fc.bias"}
    unseen = TensorTable({"fc.bias": TensorFacts()})
    assert cancelled(gradient, unseen) == frozenset(), "the path is known, and no gradient was made"
    assert unexplained_zero_gradients(gradient, by_autograd) == unexplained_zero_gradients(gradient, unseen) == frozenset()
    assert cancelled(gradient, TensorTable({})) == unexplained_zero_gradients(gradient, TensorTable({})) == {"fc.bias"}


def test_what_is_left_out_is_said_once_by_kind():
    gradient = series(
        **{
            f"{KEY}.weight": [1.0],
            f"{KEY}.bias": [1e-9],
            "net.0.weight": [1.0],
            "net.0.bias": [1e-7],
            "net.3.weight": [1.0],
            "net.3.bias": [1e-8],
            "head.weight": [1.0],
            "head.bias": [0.5],
        }
    )
    assert left_out(gradient, TensorTable({})) == [
        (
            "3 tensors have no gradient by construction and are left out: key biases (1), "
            "biases and scales that a normalization or a softmax takes out (2)"
        )
    ]


def test_a_key_bias_that_positions_reach_is_not_called_one_without_gradient():
    rotated = series(**{f"{KEY}.weight": [1.0], f"{KEY}.bias": [0.3]})
    assert left_out(rotated, TensorTable({})) == []


def test_a_frozen_bias_is_not_said_to_be_left_out():
    gradient = series(**{"net.0.weight": [1.0], "net.0.bias": [0.0]})
    assert left_out(gradient, TensorTable({"net.0.bias": TensorFacts(trainable=False)})) == []


def test_parts_without_use_are_left_out_and_told_until_they_get_a_gradient():
    table = TensorTable({"pooler.weight": TensorFacts(no_gradient="unused"), "head.weight": TensorFacts()})
    alone = series(**{"head.weight": [1.0, 1.0]})
    assert cancelled(alone, table) == cancelled(None, table) == {"pooler.weight"}
    assert left_out(alone, table) == [
        "1 tensor has no gradient by construction and is left out: parts that the forward pass does not use (1)"
    ]
    later = series(**{"head.weight": [1.0, 1.0], "pooler.weight": [0.5, 0.5]})
    assert (cancelled(later, table), left_out(later, table)) == (frozenset(), [])


def test_a_fixed_table_is_left_out_without_a_word():
    table = TensorTable({"positions": TensorFacts(no_gradient="fixed_table", trainable=False)})
    assert (cancelled(series(head=[1.0]), table), left_out(series(head=[1.0]), table)) == ({"positions"}, [])


def test_a_bias_that_is_known_to_be_taken_out_is_left_out_even_where_its_gradient_is_exactly_zero():
    gradient = series(**{"conv.weight": [1.0, 1.0], "conv.bias": [0.0, 0.0]})
    table = TensorTable({"conv.bias": TensorFacts(no_gradient="taken_out_by_norm")})
    assert cancelled(gradient, table) == {"conv.bias"}


@pytest.mark.parametrize(
    ("q", "k", "v"), [("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("wq", "wk", "wv"), ("q", "k", "v")]
)
def test_queries_and_keys_wait_for_each_other_while_the_value_moves(q, k, v):
    labels = [f"key.layers.0.attn.{part}.weight" for part in (q, k, v)]
    slow = np.array([[True, True, False], [True, False, False], [True, True, True]])
    expected = [[True, True, False], [False, False, False], [False, False, False]]
    assert waiting_factors(slow, labels).tolist() == expected
    assert not waiting_factors(slow[:, :2], labels[:2]).any()


@pytest.mark.parametrize(
    ("norms", "behind"),
    [
        ([1.0, np.inf, np.nan, 2.0], [2, 3]),
        ([1.0, np.inf, 2.0, np.inf], [2, 4]),
        ([1.0, np.inf, 2.0, np.nan, np.nan], [2]),
        ([1.0, 2.0, np.nan], []),
        ([1.0, np.nan, 0.0], []),
        ([np.nan, np.nan], []),
    ],
)
def test_a_gradient_is_left_behind_where_a_later_one_is_finite(norms, behind):
    norm = single("grad_global_norm", "1", np.arange(1, len(norms) + 1), np.array(norms))
    assert (np.flatnonzero(never_applied(norm)[:, 0]) + 1).tolist() == behind
