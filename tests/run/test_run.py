import numpy as np
import pytest

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.run.run import Event, Labels, Run
from ckaudit.run.spikes import incidents
from ckaudit.run.tensors import TensorTable
from tests.metrics.samples import column, run_of


def test_until_is_what_was_known_then():
    run = Run(
        "x",
        checkpoint_steps=np.array([1, 5, 9]),
        sections={"loss": column([1.0, 2.0, 3.0], steps=[1, 5, 9])},
        scalars={"lr": column([1.0, 2.0], steps=[4, 8])},
        texts={"hash": Labels("hash", (2, 6), ("a", "b"))},
        events=(Event(3, 2, ()), Event(9, 8, ())),
    )
    then = run.until(6)
    assert then.checkpoint_steps.tolist() == [1, 5]
    assert then.value("loss").steps.tolist() == [1, 5]
    assert then.scalar("lr").steps.tolist() == [4]
    assert (then.texts["hash"].values, [event.step for event in then.events]) == (("a", "b"), [3])


def test_until_forgets_what_was_derived_from_later_steps():
    run = run_of(scalars={"a": [1.0, 2.0]})
    assert run.derived("points", lambda: run.scalar("a").points) == 2
    then = run.until(1)
    assert then.derived("points", lambda: then.scalar("a").points) == 1


def test_a_derived_value_is_computed_once():
    run, calls = Run("x"), []
    assert [run.derived("k", lambda: calls.append(1) or 7) for _ in range(3)] == [7, 7, 7]
    assert len(calls) == 1


def test_what_was_not_recorded_is_an_empty_series():
    run = Run("x")
    assert not run.series("weights", "mean")
    assert not run.scalar("loss")
    assert run.last_step is None


def test_the_last_step_is_that_of_anything():
    assert Run("x", checkpoint_steps=np.array([1, 7]), scalars={"a": column([1.0], steps=[5])}).last_step == 7
    assert run_of(scalars={"a": [1.0, 2.0, 3.0]}).last_step == 3


@pytest.mark.parametrize(
    ("name", "depth", "kind"),
    [
        ("transformer.h.11.attn.c_attn.weight", 11, "attention"),
        ("transformer.h.0.mlp.c_fc.weight", 0, "mlp"),
        ("transformer.h.0.ln_1.weight", 0, "norm"),
        ("model.layers.3.self_attn.q_proj.weight", 3, "attention"),
        ("model.layers.3.mlp.gate_proj.weight", 3, "mlp"),
        ("model.layers.3.input_layernorm.weight", 3, "norm"),
        ("transformer.wte.weight", None, "embedding"),
        ("model.embed_tokens.weight", None, "embedding"),
        ("lm_head.weight", None, "head"),
        ("model.norm.weight", None, "norm"),
        ("blocks.2.moe.router.weight", 2, "router"),
        ("transformer.ln_f.weight", None, "norm"),
        ("layers.7.feed_forward.w1.weight", 7, "mlp"),
        ("tau", None, "other"),
    ],
)
def test_names_tell_block_and_kind(name, depth, kind):
    table = TensorTable({})
    assert (table.depth(name), table.kind(name)) == (depth, kind)


def test_the_table_counts_before_the_name():
    table = TensorTable({"h.3.w": TensorFacts(depth=1, kind="conv"), "h.4.w": TensorFacts(trainable=False)})
    assert (table.block("h.3.w"), table.kind("h.3.w")) == ("block.1", "conv")
    assert table.block("h.4.w") is None
    assert [table.is_trainable(name) for name in ("h.3.w", "h.4.w", "h.5.w")] == [True, False, True]


def test_blocks_are_sorted_by_depth():
    assert TensorTable({}).in_depth_order(["block.2", "block.11", "block.0"]) == ["block.0", "block.2", "block.11"]


def found(text, strong="", quiet=5):
    """Return (first, last, is_incident, is_open) of flags drawn as text."""
    flags = np.array([mark == "!" for mark in text])
    strongs = np.array([mark == "!" for mark in strong.ljust(len(text), ".")])
    return [(i.first, i.last, i.is_incident, i.is_open) for i in incidents(flags, strongs, quiet=quiet)]


def test_a_lone_flag_is_isolated_and_three_of_five_are_an_incident():
    assert found("..!..........") == [(2, 2, False, False)]
    assert found("!.!.!........") == [(0, 4, True, False)]
    assert found("!.!..!.......") == [(0, 5, False, False)]
    assert found("..!.!!.......") == [(2, 5, True, False)]
    assert found("..!..!..!.....") == [(2, 8, False, False)]


def test_a_strong_flag_alone_is_an_incident():
    assert found("..!..........", "..!") == [(2, 2, True, False)]


def test_quiet_ends_an_incident_and_the_end_of_the_record_leaves_it_open():
    assert found("!!!.....!!!") == [(0, 2, True, False), (8, 10, True, True)]
    assert found("!!!....!!!......") == [(0, 9, True, False)]
