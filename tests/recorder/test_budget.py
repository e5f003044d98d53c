"""The recorder under a size budget: grids of weights, gradients and attention take turns, and the file says so."""

import pytest
from msgspec import UNSET
from torch import nn

from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder

EVERY_STEP = [Cadence(until=None, every=1)]


def gridded(section, field="sampled_grid_32x32"):
    return {name for name, stats in (section or {}).items() if getattr(stats, field) is not UNSET}


def test_a_small_model_has_every_statistic_and_twelve_grids(tiny, train, tmp_path, read):
    train(tiny(), 12, tmp_path, cadence=EVERY_STEP)
    for step in range(1, 13):
        found = read(tmp_path, step)
        heads = 2 * len(gridded(found.attention, "sampled_qk_grid_32x32_per_head"))
        assert len(gridded(found.weights)) + heads >= 12
        assert gridded(found.gradients) == gridded(found.weights)
        assert all(stats.histogram is not UNSET for stats in (*found.weights.values(), *found.gradients.values()))


def test_gradient_grids_hold_the_gradient(tiny, batches, loss_of, tmp_path, read):
    model = tiny()
    with Recorder(model, tmp_path, cadence=EVERY_STEP, grids="nested", budget_kb=None) as recorder:
        loss_of(model, batches(1)[0]).backward()
        recorder.after_backward()
        recorder.step(1.0)
    found = read(tmp_path, 1)
    expected = model.blocks[1].attn.q.weight.grad.double().numpy()
    assert gridded(found.gradients) == gridded(found.weights) == {name for name, p in model.named_parameters() if p.ndim == 2}
    for row, values in zip(found.gradients["blocks.1.attn.q.weight"].sampled_grid_32x32, expected, strict=True):
        assert row == pytest.approx(values, rel=1e-3)
    assert found.left_out is UNSET


def test_a_tight_budget_leaves_out_what_it_names_and_keeps_norms_and_movement(tiny, train, tmp_path, read):
    train(tiny(), 8, tmp_path, cadence=EVERY_STEP, budget_kb=10, suffix=".json")
    found = read(tmp_path, 3)
    assert {"weights.*.histogram", "gradients.*.percentiles", "activations.*.histogram", "gradients.*.sampled_grid_32x32"} <= set(
        found.left_out
    )
    assert all(stats.frobenius_norm is not UNSET and stats.nonfinite_count == 0 for stats in found.weights.values())
    assert all(stats.norm is not UNSET and stats.nonfinite_count == 0 for stats in found.gradients.values())
    assert all(stats.norm > 0 for stats in found.weight_deltas.values())
    assert found.weight_deltas["embed.weight"].relative > 0 < found.weight_deltas["embed.weight"].moved
    assert all(stats.entropy_per_head and stats.max_attn_per_head for stats in found.attention.values())
    assert gridded(found.gradients) == set()
    seen = set().union(*(gridded(read(tmp_path, step).weights) for step in range(1, 9)))
    assert seen == {name for name, p in tiny().named_parameters() if p.ndim == 2}


def test_a_model_whose_statistics_are_too_large_for_json_is_packed(tmp_path):
    wide = nn.Sequential(*(nn.Linear(2, 2) for _ in range(200)))
    for model, suffix, options in ((wide, ".json.zst", {}), (wide, ".json", {"budget_kb": None}), (nn.Linear(2, 2), ".json", {})):
        folder = tmp_path / f"{suffix}{len(options)}{len(list(model.parameters()))}"
        Recorder(model, folder, **options).close()
        (path,) = folder.glob("analysis_checkpoint_step_00000000.*")
        assert path.name.endswith(f"00000{suffix}")
        assert read_bytes(path, path.name)
    assert (tmp_path / ".json.zst0400" / "analysis_checkpoint_step_00000000.json.zst").stat().st_size < 200_000


def test_the_black_box_of_an_event_is_shortened_to_its_newest_steps_and_the_file_says_so(tiny, train, tmp_path, read):
    def spoil(step, loss):
        return loss * 9 if step == 33 else loss

    train(tiny(), 36, tmp_path / "tight", spoil=spoil, budget_kb=20, suffix=".json")
    train(tiny(), 36, tmp_path / "free", spoil=spoil)
    short, whole = read(tmp_path / "tight", 34), read(tmp_path / "free", 34)
    kept = len(short.history.steps)
    assert 8 <= kept < 33
    assert short.history.steps == whole.history.steps[-kept:]
    assert short.history.loss == whole.history.loss[-kept:]
    assert short.history.gradient_norms == {name: norms[-kept:] for name, norms in whole.history.gradient_norms.items()}
    assert "history.steps" in short.left_out
    assert whole.left_out is UNSET


def test_step_0_has_more_room_because_it_has_no_gradients(tiny, train, tmp_path, read):
    train(tiny(), 2, tmp_path, cadence=EVERY_STEP, budget_kb=22, suffix=".json")
    first, second = read(tmp_path, 0), read(tmp_path, 1)
    assert all(stats.histogram and stats.mean is not UNSET for stats in first.weights.values())
    assert not all(stats.histogram and stats.mean is not UNSET for stats in second.weights.values())
    for step in (0, 1):
        assert (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").stat().st_size <= 22_000


def test_the_last_file_keeps_its_budget_beside_its_black_box(tiny, train, tmp_path, read):
    train(tiny(), 40, tmp_path, budget_kb=35, suffix=".json")
    last = read(tmp_path, 40)
    assert len(last.history.steps) >= 8
    assert last.triggers == ["cadence", "last"]
    sizes = {step: (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").stat().st_size for step in (10, 30, 40)}
    assert max(sizes.values()) <= 35_000


def test_the_last_file_still_names_what_it_lacked_before_its_black_box_came(tiny, train, tmp_path, read):
    train(tiny(), 40, tmp_path, budget_kb=20, suffix=".json")
    last, before = read(tmp_path, 40), read(tmp_path, 30)
    lacking = {
        f"{section}.*.{field}"
        for section in ("weights", "gradients", "activations")
        for field in ("mean", "histogram")
        if any(getattr(stats, field) is UNSET for stats in getattr(last, section).values())
    }
    assert {"weights.*.mean", "gradients.*.histogram", "activations.*.mean"} <= lacking
    assert {*lacking, "history.steps"} <= set(last.left_out)
    assert len(set(last.left_out)) == len(last.left_out)
    assert "history.steps" not in before.left_out
