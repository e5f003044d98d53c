"""Claims of an honest trainer, in every convention that the catalogue leaves open, hold; each lie is found."""

import math

import numpy as np
import pytest

from ckaudit.contract.schema.manifest import Session
from ckaudit.metrics.claims import CLAIMS, every_bound
from ckaudit.metrics.contradictions import claimed_value, nearest_allowed_value
from ckaudit.run.run import Run
from tests.loops import for_each
from tests.metrics.samples import column, run_of, table

STEPS = 600
FACTS = {"warmup_steps": 100, "flops_per_token": 6e6, "peak_flops": 1e12, "clip_norm": 1.0}


def honest(seed=0, *, beta=0.98, zero_start=False, ppl_of="ema", pads=1.0, digits=None, every=1, counting_evals=True):
    """Return the columns of a log whose every derived number is right, by plain loops."""
    rng = np.random.default_rng(seed)
    steps = np.arange(1, STEPS + 1)
    loss = 2.0 + 8.0 * steps**-0.5 + rng.normal(0, 0.05, STEPS)
    skipped = (rng.random(STEPS) < 0.02).astype(float)
    norms = rng.gamma(4.0, 0.2, STEPS)
    seconds = rng.gamma(50.0, 0.01, STEPS)
    evals = np.where(steps % 50 == 0, 3.0, 0.0)
    size = rng.integers(900, 1100, STEPS).astype(float)
    ema, now = [], 0.0 if zero_start else loss[0]
    for value in loss:
        now = beta * now + (1 - beta) * value
        ema.append(now)
    window = [float(np.mean(loss[max(0, end - 20) : end])) for end in range(1, STEPS + 1)]
    noise = {"trace": rng.gamma(9.0, 10.0, STEPS), "signal": rng.gamma(9.0, 0.1, STEPS)}
    clipped, timed = (norms > 1.0).astype(float), seconds + evals * counting_evals
    log = {
        "train_loss_raw": loss,
        "train_loss_ema": np.array(ema),
        "train_ppl": np.exp({"ema": np.array(ema), "raw": loss, "window": np.array(window)}[ppl_of]),
        "learning_rate": np.minimum(1.0, steps / 100),
        "lr_phase": 100 * np.minimum(1.0, steps / 100),
        "skipped_updates": skipped,
        "steps_seen": steps - np.cumsum(skipped),
        "overflow_rate": np.array([100 * skipped[max(0, end - 100) : end].mean() for end in steps]),
        "grad_global_norm": norms,
        "grad_clip_rate": np.array([clipped[max(0, end - 50) : end].mean() for end in steps]),
        "tokens_seen": np.cumsum(size),
        "tokens_per_update": size * pads,
        "time": 1.7e9 + np.cumsum(seconds + evals),
        "step_time": timed,
        "tokens_per_sec": size / timed,
        "mfu": size / timed * 6e6 / 1e12,
        "nan_inf_events": np.zeros(STEPS),
        **{f"grad_noise_{part}": values for part, values in noise.items()},
        "grad_noise_scale": noise["trace"] / noise["signal"],
    }
    val = {step: 2.2 + 8.0 * step**-0.5 for step in range(50, STEPS + 1, 50)}
    kept = steps % every == 0
    scalars = {
        name: column(_rounded(values, digits if name != "time" else 3)[kept].tolist(), name=name, steps=steps[kept])
        for name, values in log.items()
    }
    for name, values in (
        ("val_loss", val),
        ("val_ppl", {step: math.exp(each) for step, each in val.items()}),
        ("train_val_gap", {step: each - ema[step - 1] for step, each in val.items()}),
    ):
        scalars[name] = column([_round(each, digits) for each in values.values()], name=name, steps=list(values))
    return Run("honest", run_of(**FACTS).manifest, scalars=scalars)


def _rounded(values, digits):
    return values if digits is None else np.round(values, digits)


def _round(value, digits):
    return value if digits is None else round(value, digits)


def contradicted(run):
    return {each.label for each in every_bound(run) if (np.abs(each.claimed - each.nearest) > 1e-6 * np.abs(each.claimed)).any()}


CONVENTIONS = [
    {},
    {"beta": 0.9},
    {"beta": 0.999},
    {"beta": 0.999, "zero_start": True},
    {"ppl_of": "raw"},
    {"ppl_of": "window"},
    {"pads": 1.5},
    {"digits": 4},
    {"digits": 2},
    {"every": 10},
    {"counting_evals": False},
    {"every": 10, "digits": 2, "ppl_of": "raw"},
]


@for_each("seed", range(3))
@for_each("convention", CONVENTIONS)
def test_an_honest_trainer_is_believed(convention, seed):
    assert contradicted(honest(seed, **convention)) == set()


def test_an_honest_trainer_is_judged_by_all_its_claims():
    judged = {each.label for each in every_bound(honest()) if len(each.steps)}
    of_checkpoints = {
        "grad_global_norm",
        "update_to_weight",
        "attn_entropy",
        "max_attn_logit",
        "moe_drop_rate",
        "moe_load_balance_loss",
    }
    assert judged == set(CLAIMS) - of_checkpoints


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("convention", [{}, {"zero_start": True}, {"every": 10}, {"digits": 2}], ids=str)
@pytest.mark.parametrize("beta", [0.9, 0.98])
def test_an_average_with_the_memory_that_was_said_is_believed(beta, convention, seed):
    run = honest(seed, beta=beta, **convention)
    assert contradicted(Run("told", run_of(**FACTS, loss_ema_beta=beta).manifest, scalars=run.scalars)) == set()


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize(("stated", "is_"), [(0.98, 0.999), (0.9, 0.99)])
def test_an_average_with_a_much_longer_memory_than_was_said_is_found(stated, is_, every):
    run = honest(beta=is_, every=every)
    assert contradicted(Run("told", run_of(**FACTS, loss_ema_beta=stated).manifest, scalars=run.scalars)) == {"train_loss_ema"}


LIES = {
    "train_ppl": lambda x: 2 ** np.log(x),
    "val_ppl": lambda x: x * 1.2,
    "train_loss_ema": lambda x: x * 2,
    "train_val_gap": lambda x: x + 1.0,
    "grad_noise_scale": lambda x: x * 1.05,
    "lr_phase": lambda x: x / 100,
    "steps_seen": lambda x: x + 5,
    "overflow_rate": lambda x: x + 200,
    "grad_clip_rate": lambda x: x + 2,
    "tokens_per_update": lambda x: x / 4,
    "step_time": lambda x: x * 1000,
    "tokens_per_sec": lambda x: x / 8,
    "mfu": lambda x: x * 100,
    "nan_inf_events": lambda x: x,
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_found_and_no_other_claim_is_doubted(name):
    run = honest()
    scalars = dict(run.scalars)
    series = scalars[name]
    scalars[name] = column(LIES[name](series.values[:, 0]).tolist(), name=name, steps=series.steps)
    if name == "nan_inf_events":
        scalars["grad_global_norm"] = column([math.nan] * STEPS, name="grad_global_norm")
    found = contradicted(Run("lie", run.manifest, scalars=scalars))
    assert name in found
    assert found <= {name, "train_val_gap", "train_ppl"}


def test_rates_without_any_event_or_with_nothing_else():
    quiet = run_of(scalars={"skipped_updates": [0.0] * 20, "overflow_rate": [5.0] * 20})
    assert contradicted(quiet) == {"overflow_rate"}
    all_clipped = run_of(scalars={"clip_coefficient": [0.5] * 20, "grad_clip_rate": [100.0] * 20})
    assert contradicted(all_clipped) == {"grad_clip_rate"}, "percent in place of a fraction"


def test_claims_against_tensors_heads_and_layers():
    sections = {
        "gradients.*.norm": {10: {"a": 3.0, "b": 4.0}, 20: {"a": 3.0, "b": 4.0}},
        "weight_deltas.*.norm": {10: {"a": 0.1, "b": 0.4}},
        "weights.*.frobenius_norm": {10: {"a": 10.0, "b": 10.0}},
        "attention.*.entropy_per_head": {10: {"l/head.0": 1.0, "l/head.1": 2.0}},
        "attention.*.max_logit_per_head": {10: {"l/head.0": 12.0, "l/head.1": 20.0}},
        "moe.*.dropped": {10: {"l": 5.0}},
        "moe.*.routed": {10: {"l": 100.0}},
    }

    def judged(norm, update, entropy, drops, logit):
        names = ("grad_global_norm", "update_to_weight", "attn_entropy", "moe_drop_rate", "max_attn_logit")
        values = zip(names, (norm, update, entropy, drops, logit), strict=True)
        return contradicted(run_of(sections, {name: {10: {name: value}} for name, value in values}))

    assert judged(5.0, 0.03, 1.4, 5.0, 20.0) == judged(9.0, 0.015, 1.0, 4.0, 36.0) == set()
    all_five = {"grad_global_norm", "update_to_weight", "attn_entropy", "moe_drop_rate", "max_attn_logit"}
    assert judged(1.0, 0.5, 0.2, 0.05, 1500.0) == all_five


def test_a_rate_of_overflows_beside_a_scale_that_never_falls():
    steady, falling = [65536.0] * 10, [65536.0 / 2**k for k in range(10)]
    assert contradicted(run_of(scalars={"overflow_rate": [15.0] * 10, "loss_scale": steady})) == {"overflow_rate"}
    assert contradicted(run_of(scalars={"overflow_rate": [15.0] * 10, "loss_scale": falling})) == set()
    assert contradicted(run_of(scalars={"overflow_rate": [12.0, 3.0, 1.0, 0.0, 0.0, 0.0], "loss_scale": steady[:6]})) == set()


def balanced(logged, choices, *, skew=(2.0, 1.0)):
    """Return a run of two layers of experts with favourites of their own, and what loops over tokens say of their balance."""
    rng = np.random.default_rng(0)
    counts, shares, losses, all_counts, all_shares = {}, {}, [], np.zeros(8), np.zeros(8)
    for layer, strength in enumerate(skew):
        logits = rng.normal(0, 1, (200, 8)) + strength * (np.arange(8) == layer)
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        received, mean = np.zeros(8), probabilities.mean(axis=0)
        for token in logits:
            for expert in np.argsort(-token)[:choices]:
                received[expert] += 1
        losses.append(8 * sum(c * p for c, p in zip(received / 200, mean, strict=True)))
        all_counts, all_shares = all_counts + received / 400, all_shares + mean / 2
        counts |= {f"l.{layer}/expert.{index}": float(value) for index, value in enumerate(received)}
        shares |= {f"l.{layer}/expert.{index}": float(value) for index, value in enumerate(mean)}
    logged_loss = logged(losses, 8 * float(all_counts @ all_shares))
    name = "moe_load_balance_loss"
    return run_of({"moe.*.counts": {10: counts}, "moe.*.router_probability": {10: shares}}, {name: {10: {name: logged_loss}}})


HONEST_BALANCES = {
    "assignments": lambda losses, _whole, k: sum(losses) / 2 / k,
    "tokens": lambda losses, _whole, _k: sum(losses) / 2,
    "worst layer": lambda losses, _whole, k: max(losses) / k,
    "all layers together": lambda _losses, whole, k: whole / k,
    "all layers together, tokens": lambda _losses, whole, _k: whole,
}


@for_each("convention", HONEST_BALANCES)
@for_each("choices", [1, 2, 4])
@for_each("skew", [(0.0, 0.0), (2.0, 1.0), (9.0, 9.0)])
def test_a_load_balance_loss_is_believed_in_every_convention(convention, choices, skew):
    run = balanced(lambda losses, whole: HONEST_BALANCES[convention](losses, whole, choices), choices, skew=skew)
    assert claimed_value(run).labels == ("moe_load_balance_loss",)
    assert contradicted(run) == set()


@pytest.mark.parametrize("lie", [lambda losses, _: 0.01 * sum(losses), lambda losses, _: 1000 * sum(losses)])
def test_a_load_balance_loss_times_its_coefficient_is_not(lie):
    assert contradicted(balanced(lie, 2)) == {"moe_load_balance_loss"}


def test_claims_by_label_keep_their_label():
    losses = {50: {"books": 2.123456789, "code": 1.123456789}}
    run = run_of(scalars={"val_loss": losses, "val_ppl": {50: {"books": math.exp(2.123456789), "code": 9.0}}})
    assert contradicted(run) == {"val_ppl/code"}
    claimed, allowed = claimed_value(run), nearest_allowed_value(run)
    assert claimed.labels == allowed.labels == ("val_ppl/books", "val_ppl/code")
    assert allowed.values[-1, 1] == pytest.approx(math.exp(1.123456789 + 0.5**2 / 2) * 1.01 + 0.5)


def test_a_clock_in_whole_seconds_says_nothing_of_fast_steps():
    steps = np.arange(1, 201)
    scalars = {"time": column((1.7e9 + steps // 100).tolist(), name="time"), "step_time": column([0.01] * 200, name="step_time")}
    assert not claimed_value(Run("coarse", scalars=scalars))


def test_a_timer_that_leaves_out_slow_steps_is_believed_where_few_lines_have_its_word():
    """Every 25th line has a speed; each tenth step takes a hundred times as long, for something is recorded there."""
    steps = np.arange(1, 3001)
    seconds = np.where(steps % 10 == 0, 1.0, 0.01)
    logged_steps = steps[steps % 25 == 0]
    scalars = {
        "time": column((1.7e9 + np.cumsum(seconds)).tolist(), name="time"),
        "tokens_seen": column((100.0 * steps).tolist(), name="tokens_seen"),
        "tokens_per_sec": column([10_000.0] * len(logged_steps), name="tokens_per_sec", steps=logged_steps),
        "step_time": column([0.01] * len(logged_steps), name="step_time", steps=logged_steps),
    }
    run = Run("recorded", scalars=scalars)
    assert {each.label for each in every_bound(run) if len(each.steps)} == {"tokens_per_sec", "step_time"}
    assert contradicted(run) == set()


def test_an_average_since_the_start_is_a_convention_too():
    """The first step compiles for a minute; later averages still remember it."""
    seconds = np.where(np.arange(600) == 3, 60.0, 0.5)
    clock, so_far = np.cumsum(seconds), np.cumsum(seconds) / np.arange(1, 601)
    columns = {
        "time": 1.7e9 + clock,
        "step_time": so_far,
        "tokens_seen": 100.0 * np.arange(1, 601),
        "tokens_per_sec": 100.0 / so_far,
    }
    scalars = {name: column(values.tolist(), name=name) for name, values in columns.items()}
    assert contradicted(Run("compiled", scalars=scalars)) == set()


def test_a_restart_that_run_json_lists_is_no_slow_step():
    run = honest()
    time = run.scalars["time"]
    later = time.values[:, 0] + np.where(time.steps > 310, 5_000.0, 0.0)
    scalars = {**run.scalars, "time": column(later.tolist(), name="time")}
    listed = run_of(**FACTS, sessions=[Session(start=1.7e9), Session(start=float(later[310]) - 1.0)]).manifest
    assert contradicted(Run("resumed", listed, scalars=scalars)) == set()


def test_an_evaluation_before_any_training_loss_is_not_judged():
    assert not claimed_value(run_of(scalars={"train_ppl": [3.0], "train_loss_raw": {5: {"x": 1.0}}}))
    assert not claimed_value(run_of(scalars={"train_val_gap": table({1: {"x": 1.0}}).values[0].tolist()}))


def test_a_counter_kept_in_float32_allows_what_that_rounds():
    count = 2**33 + 4_003 * np.arange(60, dtype=float)  # float32 knows multiples of 1,024 there
    seen = count.astype(np.float32).astype(float)
    assert set(np.diff(seen)) == {4096.0, 3072.0}
    run = run_of(scalars={"tokens_seen": seen.tolist(), "tokens_per_update": [4_003.0] * 60})
    assert contradicted(run) == set()
