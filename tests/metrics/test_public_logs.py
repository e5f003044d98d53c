"""Flags, minima and gaps of public logs against a plain reading of the stated definitions, point by point."""

import csv
import json
import math
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from ckaudit.audit.load_run import open_run
from ckaudit.metrics.divergence import val_rise
from ckaudit.metrics.loss import train_loss_raw, train_val_gap, val_loss
from ckaudit.metrics.plateau import steps_since_improvement
from ckaudit.metrics.spikes import grad_spike_flag, spike_flags
from tests.metrics.samples import cells

REAL = Path(__file__).parents[2] / "fixtures" / "real"
LOSSES = {
    "pythia/160m-8.first5000.csv": "train/lm_loss",
    "pythia/160m-6.first5000.csv": "train/lm_loss",
    "multipowerlaw/csv_400/cosine_24000.csv": "loss",
    "algoperf/wmt_caspr_spiky/measurements.csv": "loss",
    "hf_trainer/mistral_lora_4ep/trainer_state.json": "loss",
}
EVALS = {
    "hf_trainer/whisper_small_hi_overfit/trainer_state.json": ("loss", "eval_loss"),
    "hf_trainer/whisper_flemish_15k/trainer_state.json": ("loss", "eval_loss"),
    "algoperf/ogbg_prodigy_overfit_s2/measurements.csv": ("loss", "validation/loss"),
}


def rows(file):
    """Return the entries of a log as dictionaries, whatever it is."""
    text = (REAL / file).read_text(encoding="utf-8")
    return json.loads(text)["log_history"] if file.endswith(".json") else list(csv.DictReader(text.splitlines()))


def curve(file, column):
    """Return {step: value} of one column, empty cells left out."""
    found = {}
    for row in rows(file):
        step = row.get("step") or row.get("global_step")
        if row.get(column) not in (None, "") and step not in (None, ""):
            found[int(float(step))] = float(row[column])
    return found


def run(file):
    return open_run(REAL / file, reads=[])


def decimals(value):
    """Return the step of the last decimal of a number, 0 where it has more than eight."""
    return next((10.0**-places for places in range(9) if round(value, places) == value), 0.0)


def bfloat16(value):
    """Return the distance to the next bfloat16 where a number is one, else 0."""
    mantissa, exponent = math.frexp(value)
    return 2.0 ** (exponent - 8) if value and (mantissa * 256).is_integer() else 0.0


@pytest.mark.parametrize("file", LOSSES)
def test_spike_flags_are_those_of_the_definition(file):
    """x > m + 6 max(1.4826 MAD, r / 2, |m| / 1000) over the 50 points before, r the finest digit among them (F15)."""
    losses = curve(file, LOSSES[file])
    steps, values = list(losses), list(losses.values())
    expected = []
    digits = [max(decimals(value), bfloat16(value)) for value in values]
    for row in range(50, len(values)):
        before = values[row - 50 : row]
        middle = median(before)
        spread = 1.4826 * median(abs(value - middle) for value in before)
        digit = min(digits[row - 50 : row])
        if values[row] > middle + 6.0 * max(spread, digit / 2, abs(middle) / 1_000):
            expected.append(steps[row])
    flags = spike_flags(run(file))
    assert flags.steps[flags.values[:, 0] == 1].tolist() == expected


@pytest.mark.parametrize("file", LOSSES)
def test_losses_and_their_minimum(file):
    losses = curve(file, LOSSES[file])
    found = {step: value for (step, _), value in cells(train_loss_raw(run(file))).items() if not math.isnan(value)}
    assert found == losses
    assert min(found, key=found.__getitem__) == min(losses, key=losses.__getitem__)


@pytest.mark.parametrize("file", EVALS)
def test_gap_rise_and_patience_of_evaluations(file):
    column, held_out = EVALS[file]
    losses, evals = curve(file, column), curve(file, held_out)
    opened = run(file)
    assert {step: value for (step, _), value in cells(val_loss(opened)).items()} == evals
    rises, since, best, kept, last = {}, {}, math.inf, math.inf, 0
    for step, value in evals.items():
        best = min(best, value)
        rises[step] = (value - best) / best
        if value < kept * (1 - 1e-3):
            kept, last = value, step
        since[step] = step - last
    assert {step: value for (step, _), value in cells(val_rise(opened)).items()} == pytest.approx(rises)
    assert {step: value for (step, _), value in cells(steps_since_improvement(opened)).items()} == since
    gaps = {}
    for step, value in evals.items():
        past = [(at, loss) for at, loss in losses.items() if at <= step]
        recent = [loss for at, loss in past if at > 0.9 * step][-20:]
        if past:
            gaps[step] = value - float(np.median(recent if len(recent) >= 3 else [loss for _, loss in past[-3:]]))
    assert {step: value for (step, _), value in cells(train_val_gap(opened)).items()} == pytest.approx(gaps)


def test_flags_of_the_gradient_norm_are_where_its_spikes_are():
    flags = grad_spike_flag(run("hf_trainer/mistral_lora_4ep/trainer_state.json"))
    assert {3220, 5510} <= set(flags.steps[flags.values[:, 0] == 1].tolist())
    assert not flags.recorded[:50].any()
