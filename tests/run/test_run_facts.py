import numpy as np
import pytest
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest, Session, TensorFacts
from ckaudit.run.column_builder import LOSS_FUNCTIONS
from ckaudit.run.run_facts import infer_own_targets, infer_token_loss, planned_range, planned_rate, resume_steps
from ckaudit.run.series import single

PLAN = Manifest(schema_version="ck.run.v1", planned_learning_rate=[[10.0, 1.0], [1.0, 0.1], [20.0, 0.0]])


def test_the_plan_is_linear_between_its_points_and_flat_beyond():
    assert planned_rate(PLAN, np.array([0, 1, 10, 15, 20, 99])).tolist() == [0.1, 0.1, 1.0, 0.5, 0.0, 0.0]


def test_the_range_of_a_step_is_that_of_the_points_around_it():
    low, high = planned_range(PLAN, np.array([0, 5, 10, 15, 99]))
    assert low.tolist() == [0.1, 0.1, 1.0, 0.0, 0.0]
    assert high.tolist() == [0.1, 1.0, 1.0, 1.0, 0.0]


def test_without_a_plan_there_is_none():
    assert planned_rate(None, np.array([1])) is None
    assert planned_range(Manifest(schema_version="ck.run.v1"), np.array([1])) is None
    assert planned_rate(Manifest(schema_version="ck.run.v1", planned_learning_rate=[["NaN", 1.0]]), np.array([1])) is None


def test_seams_are_where_later_sessions_began():
    sessions = [Session(start=1.0, resumed_from=7), Session(start=2.0, resumed_from=50), Session(start=3.0)]
    assert resume_steps(Manifest(schema_version="ck.run.v1", sessions=sessions)) == [50]
    assert resume_steps(Manifest(schema_version="ck.run.v1")) == []


def _with_losses(*, function="cross_entropy", classes=96, trained=4.5, batch=(), **facts):
    """Return the facts of a run whose loss function was seen to return 4.5, beside an embedding of 96 rows."""
    steps = np.array([10, 20])
    fields = {"function": float(LOSS_FUNCTIONS.index(function)), "classes": float(classes), "value": 4.5}
    columns = {f"loss_function.{name}": np.full((2, 1), value) for name, value in fields.items()}
    columns |= {f"data.{name}": np.full((2, 1), 0.5) for name in batch}
    sections = {name: single(name, "1", steps, values, np.isfinite(values)) for name, values in columns.items()}
    losses = single("train_loss_raw", "1", steps, np.full((2, 1), trained), np.full((2, 1), True))
    tensors = {"embed.weight": TensorFacts(kind="embedding", shape=(96, 8)), "head.weight": TensorFacts(shape=(96, 8))}
    return infer_token_loss(Manifest(schema_version="ck.run.v1", tensors=tensors, **facts), sections, losses)


def test_a_cross_entropy_among_the_rows_of_an_embedding_is_of_tokens():
    known = _with_losses()
    assert (known.loss_kind, known.vocabulary) == ("nats_per_token", 96)
    assert _with_losses(batch=["token_histogram", "target_equals_input"]).vocabulary == 96


@pytest.mark.parametrize(
    "other",
    [
        {"classes": 10},
        {"function": "mse_loss"},
        {"trained": 900.0},
        {"batch": ["token_histogram"]},
        {"loss_kind": "other"},
        {"vocabulary": 150},
    ],
)
def test_any_other_loss_is_left_as_run_json_has_it(other):
    """Ten classes, squares, a sum over tokens, a class a row, a kind that run.json names, more tokens than classes, or fewer."""
    known = _with_losses(**other)
    given = Manifest(schema_version="ck.run.v1", **{name: other[name] for name in ("loss_kind", "vocabulary") if name in other})
    assert (known.loss_kind, known.vocabulary) == (given.loss_kind, given.vocabulary)


def test_a_text_that_is_sorted_into_few_classes_has_no_loss_of_tokens():
    assert _with_losses(vocabulary=50257).loss_kind == "other"
    assert _with_losses(function="binary_cross_entropy_with_logits", classes=np.nan, vocabulary=96).loss_kind == "other"


def _with_targets(values, **sections):
    """Return the facts of a run of regression whose targets, of all batches so far, have had these variances."""
    steps = np.arange(1, len(values) + 1) * 10
    spread = single("loss_function.constant_value", "1", steps, np.array(values)[:, None], np.ones((len(values), 1), bool))
    return infer_own_targets(Manifest(schema_version="ck.run.v1"), {"loss_function.constant_value": spread, **sections})


def test_targets_that_grow_with_what_is_learnt_are_the_model_s_own():
    """As recorded of deep Q-learning that learns: the variance goes from 0.002 to 30, with every checkpoint."""
    grown = _with_targets([0.002, 0.24, 0.47, 1.2, 2.2, 3.3, 4.6, 6.2, 8.1, 10.9, 14.0, 17.0, 20.1, 23.4, 30.6])
    assert grown.reinforcement_learning is True


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 1.1, 0.9, 1.0, 1.05, 1.0, 0.98, 1.0, 1.0, 1.0, 1.0, 1.0],
        [1.0] * 6 + [500.0, 900.0, 1200.0, 1400.0, 1500.0, 1600.0],  # other targets from one step on
        [0.01, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],  # the first batch was of one kind
        [0.002, 0.3, 3.0, 30.0],
    ],
)
def test_targets_of_data_are_not(values):
    assert _with_targets(values).reinforcement_learning is UNSET
