"""The four derived numbers against slow loops, hand-computed values, and through real files by their exact names."""

import json
import math
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from ckaudit.audit import triage_run
from ckaudit.audit.figures import derived
from ckaudit.cli.run import run as main
from tests.cases import run_of

STEPS = "1..400"


def run(**scalars):
    return run_of({"name": "x", "scalars": scalars})


def slow_spikes(losses, *, window=50, k=6.0):
    """Return the steps of F15 by its own words: above the median by k scaled deviations, none while the window fills."""
    flagged = []
    for index in range(window, len(losses)):
        past = losses[index - window : index]
        middle = median(past)
        spread = max(1.4826 * median(abs(loss - middle) for loss in past), 1e-3 * abs(middle))
        if losses[index] > middle + k * spread:
            flagged.append(index + 1)
    return flagged


def slow_divergence(steps, train, val):
    """Return F12 on noiseless curves: the first step from the lowest validation loss on after which the gap only widens."""
    gaps = [held_out - trained for held_out, trained in zip(val, train, strict=True)]
    for place in range(val.index(min(val)), len(steps)):
        later = gaps[place:]
        if all(after > before for before, after in pairwise(later)):
            return steps[place]
    return None


@pytest.mark.parametrize("seed", range(5))
def test_spike_flags_are_those_of_the_slow_detector(seed):
    rng = np.random.default_rng(seed)
    losses = 5.0 * np.arange(1, 401) ** -0.1 + rng.normal(0, 0.02, 400)
    losses[rng.choice(np.arange(60, 400), 7, replace=False)] += rng.uniform(0.5, 3.0, 7)
    found = derived(run(train_loss_raw={"steps": STEPS, "values": losses.tolist()}), [])
    expected = slow_spikes(losses.tolist())
    assert found.spike_flags == expected
    assert found.spike_flags_count == len(expected) >= 7


def test_a_long_list_of_flags_is_cut_and_counted():
    losses = [2.0, 2.02] * 600
    losses[60::8] = [9.0] * len(losses[60::8])
    found = derived(run(train_loss_raw={"steps": "1..1200", "values": losses}), [])
    assert len(found.spike_flags) == 100
    assert found.spike_flags_count == len(slow_spikes(losses)) > 100


def test_a_spike_in_a_log_shorter_than_the_window_is_that_of_its_finding():
    losses = [3.0 - 0.02 * step for step in range(40)]
    losses[25] += 3.0
    report = triage_run(run(train_loss_raw={"steps": "1..40", "values": losses}))
    spikes = [each.worst_step for each in report.findings if each.name == "loss_spike"]
    assert report.derived.spike_flags == (spikes or None)
    assert bool(spikes) != ("spike_flags" in report.derived.reasons)


@pytest.mark.parametrize("turn", [4, 8, 15])
def test_the_divergence_step_is_that_of_the_slow_loop(turn):
    steps = list(range(100, 2100, 100))
    train = [4.0 - 0.12 * index for index in range(20)]
    val = [4.1 - 0.12 * index if index <= turn else 4.1 - 0.12 * turn + 0.08 * (index - turn) for index in range(20)]
    found = derived(run(train_loss_raw={"steps": steps, "values": train}, val_loss={"steps": steps, "values": val}), [])
    # Train losses around an evaluation are a median of up to twenty; on a straight line it lags by the same number.
    assert abs(found.divergence_step - slow_divergence(steps, train, val)) <= 100


def test_losses_that_fall_together_do_not_part():
    steps = list(range(100, 2100, 100))
    train = [4.0 - 0.1 * index for index in range(20)]
    found = derived(
        run(train_loss_raw={"steps": steps, "values": train}, val_loss={"steps": steps, "values": [x + 0.1 for x in train]}), []
    )
    assert found.divergence_step is None
    assert "does not part" in found.reasons["divergence_step"]


def test_the_ratio_of_gradient_to_weight_by_hand():
    """Norms 0.3 and 0.002 over weights of 100 elements with mean 0 and deviation 0.1: norm 1."""
    labels = ["a.weight", "b.weight"]
    weights = {"steps": [10, 20], "labels": labels}
    made = run_of(
        {
            "name": "x",
            "facts": {"tensors": {label: {"shape": [10, 10]} for label in labels}},
            "sections": {
                "gradients.*.norm": weights | {"values": [[9.0, 9.0], [0.3, 5e-5]]},
                "weights.*.mean": weights | {"values": [[0.0, 0.0]] * 2},
                "weights.*.std": weights | {"values": [[0.1, 0.1]] * 2},
                "weights.*.numel": weights | {"values": [[100, 100]] * 2},
            },
        }
    )
    ratio = derived(made, []).grad_to_weight
    assert (ratio.min, ratio.max) == (pytest.approx(5e-5), pytest.approx(0.3))
    assert (ratio.min_where, ratio.max_where, ratio.step) == ("b.weight", "a.weight", 20)
    assert (ratio.below, ratio.above, ratio.tensors) == (1, 1, 2)


def test_tau_and_its_trend_by_hand():
    taus = [0.0, 0.4, 0.8, 0.6, 0.5]
    rows = [[2.0, 2.0 + each] for each in taus]
    found = derived(run(slice_val_loss={"steps": "0..1000:250", "labels": ["regular", "irregular"], "values": rows}), []).tau
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in combinations(enumerate(taus), 2)]
    assert found.trend == pytest.approx(median(slopes) * 1000 / 250)
    assert (found.first, found.peak, found.peak_step, found.last, found.points) == (
        0.0,
        pytest.approx(0.8),
        500,
        pytest.approx(0.5),
        5,
    )


def test_what_is_missing_is_null_and_says_why():
    found = derived(run(), [])
    assert (found.divergence_step, found.tau, found.spike_flags, found.grad_to_weight) == (None,) * 4
    assert found.reasons.keys() == {"divergence_step", "tau", "spike_flags", "grad_to_weight"}
    assert "regular and irregular" in found.reasons["tau"]


def written(folder: Path) -> Path:
    """Write a run that overfits, spikes, and has two slices of its own names."""
    folder.mkdir()
    lines = []
    for step in range(10, 2010, 10):
        loss = 4.0 * math.exp(-step / 800) + (3.0 if step == 1200 else 0.0) + 0.01 * (step % 30)
        line = {"step": step, "train_loss_raw": loss}
        if step % 100 == 0:
            val = 4.0 * math.exp(-min(step, 800) / 800) + max(0, step - 800) / 1000
            line |= {"val_loss": val, "slice_val_loss/prose": val - 0.2, "slice_val_loss/code": val + 0.3 * min(1, step / 500)}
        lines.append(json.dumps(line))
    (folder / "scalars.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def as_json(capsys, *words) -> dict:
    main([*map(str, words), "--format", "json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("where", ["run.json", "ckaudit.toml", "command line"])
def test_the_slices_are_named_in_the_run_the_policy_or_on_the_command_line(where, tmp_path, monkeypatch, capsys):
    folder = written(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    words = []
    if where == "run.json":
        (folder / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", "tau_slices": ["prose", "code"]}))
    elif where == "ckaudit.toml":
        Path("ckaudit.toml").write_text('tau_slices = ["prose", "code"]\n')
    else:
        words = ["--tau-slices", "prose,code"]
    found = as_json(capsys, "triage", folder, *words)["derived"]
    assert found["tau"]["slices"] == ["prose", "code"]
    assert found["tau"]["last"] == pytest.approx(0.5)
    assert found["spike_flags"] == [1200]
    assert found["spike_flags_count"] == 1
    assert 700 <= found["divergence_step"] <= 900
    assert found["grad_to_weight"] is None
    assert found["reasons"].keys() == {"grad_to_weight"}
    main(["metrics", str(folder), "tau", "divergence_step", "spike_flags", "--format", "json", *words])
    measured = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in measured["metrics"]} >= {"tau", "divergence_step", "spike_flags"}


def test_the_screen_has_the_numbers_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["triage", str(written(tmp_path / "run")), "--tau-slices", "prose,code"])
    shown = capsys.readouterr().out
    assert "Derived" in shown
    assert "tau              0.5 nats at step 2000 (code less prose" in shown
    assert "spike_flags      1: step 1200" in shown


@pytest.mark.parametrize("word", ["prose", "prose,", "a,a", "a,b,c"])
def test_two_slices_are_two(word, tmp_path, capsys):
    assert main(["triage", str(written(tmp_path / "run")), "--tau-slices", word]) == 2
    assert "EASY,HARD" in capsys.readouterr().err
