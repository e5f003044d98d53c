"""Two hundred checkpoints of a model with 310 tensors and 448 heads: who has a grid when, told a second time by hand."""

import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ckaudit.contract.budget import apply_plan, bytes_for_black_box, plan
from ckaudit.contract.cadence import DEFAULT_CADENCE, is_due
from ckaudit.contract.io.codec import encode, significant
from ckaudit.contract.schema.checkpoint import Checkpoint, MoeStats
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.contract.sizes import SizedPart, Sizes
from ckaudit.recorder.loop.step_state import StepState
from ckaudit.recorder.model.budget_planner import BudgetPlanner, newest_that_fit

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))

from checkpoints.qwen import BLOCKS, LAYERS, MATRICES, MODULES, OBSERVED, SHAPES, TENSORS, encoded, grids_in, history

CHECKPOINTS = 200
HEADS = {part.name for part in LAYERS}
MARKED = (None, 0, BLOCKS // 2, BLOCKS - 1)


@cache
def block_of(name):
    """The block that a tensor, module or layer stands in, by the words of its name; None outside."""
    words = name.split(".")
    return int(words[2]) if name.startswith("model.layers.") else int(words[1]) if words[0] == "layer" else None


def dealt(count):
    """The layers of each turn: like cards from a pile, one a checkpoint, and further ones until twelve grids are there."""
    pile, turns = [None, *range(BLOCKS)], []
    grids = {layer: sum(block_of(name) == layer for name in MATRICES) + (0 if layer is None else 16) for layer in pile}
    for _ in range(count):
        hand = [pile[0]]
        while sum(grids[layer] for layer in hand) < 12:
            hand.append(pile[len(hand)])
        turns.append((hand, [*pile]))
        pile.append(pile.pop(0))
    return turns


def slow_plan(turn, pile, marked, budget, left, q8_left, qk_share):
    """The choice of one checkpoint, one thing after the other, with what each adds to the file."""
    s = Sizes()
    names = {"numbers": SHAPES, "distributions": SHAPES, "outputs": MODULES, "activations": MODULES}
    names |= {"weights": MATRICES, "gradients": MATRICES, "attention": HEADS}
    cost = {"numbers": s.numbers, "distributions": s.distribution, "outputs": s.output, "activations": s.module_histogram}
    cost = {kind: value * left for kind, value in cost.items()}
    cost["weights"] = cost["gradients"] = (s.grid + 1024 * 4 / 3) * q8_left
    cost["attention"] = (s.grid + 16 * 1024 * 4 / 3 * qk_share) * q8_left
    spent = 4_000 + sum(s.norms + 3 * (len(name) + 6) for name in SHAPES) + sum(s.module + len(name) + 6 for name in MODULES)
    spent = (spent + sum(16 * s.head + len(name) + 6 for name in HEADS)) * left
    chosen = {kind: set() for kind in names}
    others = [layer for layer in pile if layer not in turn]
    wanted = [(layer, kind, True) for layer in turn for kind in ("weights", "attention")]
    wanted += [(layer, kind, False) for layer in turn for kind in ("numbers", "outputs", "distributions", "activations")]
    wanted += [(layer, kind, False) for layer in others for kind in ("numbers", "outputs")]
    wanted += [(layer, kind, False) for kind in ("distributions", "activations") for layer in others]
    wanted += [(layer, kind, False) for layer in marked for kind in ("weights", "attention")]
    wanted += [(layer, "gradients", False) for layer in (*turn, *marked)]
    for layer, kind, needed in wanted:
        here = {name for name in names[kind] if block_of(name) == layer}
        if needed or spent + len(here) * cost[kind] <= budget:
            spent += len(here) * cost[kind]
            chosen[kind] |= here
    return chosen, spent


@cache
def planned(ordinal, suffix, *, last=False):
    return plan(TENSORS, LAYERS, OBSERVED, ordinal, 200, suffix=suffix, last=last)


@pytest.mark.parametrize(("suffix", "shares"), [(".json", (1.0, 1.0, 1.0)), (".json.zst", (0.24, 0.72, 0.52))])
def test_each_of_two_hundred_plans_is_that_of_a_slow_dealer(suffix, shares):
    for ordinal, (turn, pile) in enumerate(dealt(CHECKPOINTS)):
        last = ordinal == CHECKPOINTS - 1
        marked = [None, 0, BLOCKS - 1, BLOCKS // 2] if ordinal % 5 == 0 or last else []
        expected, size = slow_plan(turn, pile, [layer for layer in marked if layer not in turn], 200_000, *shares)
        found = planned(ordinal, suffix, last=last)
        assert {kind: set(names) for kind, names in found.chosen.items()} == expected, ordinal
        assert found.bytes == pytest.approx(size, abs=1)


@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_every_matrix_and_head_has_a_grid_in_any_forty_checkpoints(suffix):
    plans = [planned(ordinal, suffix).chosen for ordinal in range(CHECKPOINTS)]
    seen = {name: [-1] for name in MATRICES | HEADS}
    for ordinal, chosen in enumerate(plans):
        for name in chosen["weights"] | chosen["attention"]:
            seen[name].append(ordinal)
    for places in seen.values():
        assert all(after - before <= 40 for before, after in pairwise([*places, CHECKPOINTS]))


def test_embedding_first_middle_and_last_block_are_there_first_last_and_every_fifth_time():
    wanted = {name for name in MATRICES | HEADS if block_of(name) in MARKED}
    assert len(wanted) == 1 + 3 * 7 + 3
    for ordinal in range(CHECKPOINTS):
        last = ordinal == CHECKPOINTS - 2
        chosen = planned(ordinal, ".json.zst", last=last).chosen
        assert (chosen["weights"] | chosen["attention"] >= wanted) == (last or ordinal % 5 == 0)


@pytest.mark.parametrize("ordinal", range(0, CHECKPOINTS, 38))
@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_files_of_the_run_hold_what_is_planned_and_keep_the_budget(suffix, ordinal, whole):
    document = msgspec.json.decode(whole, type=Checkpoint)
    chosen = planned(ordinal, suffix)
    apply_plan(document, chosen, TENSORS, LAYERS)
    assert grids_in(document) >= 12
    assert len(encode(document, suffix)) <= 200_000
    for section, field in (("weights", "sampled_grid_32x32"), ("attention", "sampled_qk_grid_32x32_per_head")):
        found = {name for name, stats in getattr(document, section).items() if getattr(stats, field)}
        assert found == chosen.chosen[section]


@pytest.fixture
def whole():
    return encoded()


@pytest.mark.parametrize("cadence", [DEFAULT_CADENCE, (Cadence(until=None, every=7),)])
@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_two_runs_of_one_cadence_have_equal_grids_whatever_events_they_have(cadence, suffix):
    planner = BudgetPlanner(grids="q8", budget_kb=200, suffix=suffix, cadence=cadence)

    def grids(step):
        chosen = planner.plan(TENSORS, LAYERS, OBSERVED, StepState(step=step)).chosen
        return {kind: chosen[kind] for kind in ("weights", "attention", "gradients")}

    due = [step for step in range(1_001) if is_due(step, cadence)]
    quiet = {step: grids(step) for step in due}
    eventful = {step: grids(step) for step in sorted({*due, 3, 4, 501, 777, 999})}
    assert {step: eventful[step] for step in due} == quiet
    assert all(quiet[a] != quiet[b] for a, b in pairwise(due))


@pytest.mark.parametrize(("suffix", "many"), [(".json", 32), (".json.zst", 128)])
def test_the_routing_of_many_experts_counts(whole, suffix, many):
    rng = np.random.default_rng(0)
    planner, sizes = BudgetPlanner(grids="q8", budget_kb=200, suffix=suffix, cadence=DEFAULT_CADENCE), []
    for experts in (0, many):
        document = msgspec.json.decode(whole, type=Checkpoint)
        if experts:
            document.moe = {
                layer.name: MoeStats(
                    counts=rng.multinomial(60_000, share := rng.dirichlet(np.ones(experts))).astype(float).tolist(),
                    routed=60_000.0,
                    router_probability=significant(share),
                )
                for layer in LAYERS
            }
        chosen = planner.fit(document, TENSORS, StepState(step=10))
        apply_plan(document, chosen, TENSORS, LAYERS)
        data = encode(document, suffix)
        assert len(data) <= 200_000
        assert grids_in(document) >= 12
        sizes.append(chosen.bytes / len(data))
    assert sizes == pytest.approx([1, 1], abs=0.1)


def test_other_heads_or_modules_change_sizes_and_not_turns():
    for heads in (1, 4, 64):
        layers = [SizedPart(layer.name, layer.depth, heads) for layer in LAYERS]
        chosen = plan(TENSORS, layers, OBSERVED, 6, 200, suffix=".json").chosen
        assert "model.layers.5.mlp.up_proj.weight" in chosen["weights"]
        assert "layer.5" in chosen["attention"]


def test_a_packed_file_has_all_statistics_and_the_grids_of_its_turn_beside_a_black_box():
    whole_box = history()
    for ordinal, (turn, _) in enumerate(dealt(40)):
        box = newest_that_fit(whole_box, bytes_for_black_box(TENSORS, LAYERS, OBSERVED, ordinal, 200, suffix=".json.zst"))
        chosen = plan(TENSORS, LAYERS, OBSERVED, ordinal, 200, suffix=".json.zst", besides=len(encode(box))).chosen
        assert chosen["weights"] | chosen["attention"] >= {name for name in MATRICES | HEADS if block_of(name) in turn}
        assert chosen["numbers"] == chosen["distributions"] == set(SHAPES)
        assert chosen["outputs"] == chosen["activations"] == set(MODULES)
