"""Perplexities of checkpoints: every convention that the rule CLM001 accepts is accepted here, another base is not."""

import json
import math

import numpy as np
import pytest

from ckaudit.contract.check import check_checkpoint
from ckaudit.metrics.contradictions import claimed_value, nearest_allowed_value
from ckaudit.rules.files.contradicted_claim import contradicted_claim
from tests.loops import for_each
from tests.metrics.samples import run_of

STEPS = 300


def found(loss=None, **scalars):
    document = {"schema_version": "ck.analysis.v1", "step": 1, "scalars": scalars} | ({} if loss is None else {"loss": loss})
    return {each.code for each in check_checkpoint(json.dumps(document).encode(), "x.json").findings}


def log(convention, *, scale, seed):
    """The losses of a run, and the perplexity that a trainer makes of them by its convention, by plain loops."""
    rng = np.random.default_rng(seed)
    raw = [scale * (1 + 3 * step**-0.5) * (1 + 0.02 * rng.normal()) for step in range(1, STEPS + 1)]
    average, now = [], raw[0]
    for loss in raw:
        now = 0.98 * now + 0.02 * loss
        average.append(now)
    window = [math.fsum(raw[max(0, end - 20) : end]) / min(end, 20) for end in range(1, STEPS + 1)]
    bases = {"raw": raw, "average": average, "window": window, "two": average, "ten": raw}
    base = {"two": 2.0, "ten": 10.0}.get(convention, math.e)
    return raw, average, [base**loss for loss in bases[convention]]


def of_rule(raw, average, perplexity):
    run = run_of(scalars={"train_loss_raw": raw, "train_loss_ema": average, "train_ppl": perplexity})
    return bool(list(contradicted_claim.function(claimed_value(run), nearest_allowed_value(run))))


@for_each("seed", range(2))
@for_each("scale", [0.5, 1.0, 2.7])
@for_each("convention", ["raw", "average", "window", "two", "ten"])
def test_a_training_perplexity_is_judged_as_the_rule_judges_it(convention, scale, seed):
    columns = log(convention, scale=scale, seed=seed)
    wrong = convention in ("two", "ten")
    assert of_rule(*columns) == wrong
    codes = [
        found(train_loss_raw=loss, train_loss_ema=mean, train_ppl=perplexity)
        for loss, mean, perplexity in zip(*columns, strict=True)
    ]
    # While the loss falls fast, the raw one lies so far below its average that a wrong base may hide between the two.
    assert codes[200:] == [{"VAL056"} if wrong else set()] * 100
    assert wrong or not any(codes)


def test_the_loss_of_the_checkpoint_is_a_raw_one_too():
    assert found(loss=9.0, train_loss_ema=3.3, train_ppl=math.exp(9.0)) == set()
    assert found(loss=9.0, train_loss_ema=3.3, train_ppl=math.exp(6.0)) == set(), "a shorter average"
    assert found(loss=3.2, train_loss_ema=3.3, train_ppl=math.exp(6.0)) == {"VAL056"}


def test_without_an_average_nothing_bounds_a_training_perplexity():
    assert found(loss=3.2, train_ppl=math.exp(9.0)) == set()
    assert found(train_loss_ema="NaN", train_loss_raw=3.2, train_ppl=math.exp(9.0)) == set()
    assert found(train_loss_ema=3.3, train_ppl=math.exp(6.0)) == {"VAL056"}
    assert found(train_loss_ema=3.3, train_ppl="Infinity") == set()


@pytest.mark.parametrize(("loss", "digits"), [(0.14, 1), (3.3456, 0), (1.91, 1), (0.7, 0)])
def test_what_was_rounded_is_no_contradiction(loss, digits):
    assert found(val_loss=loss, val_ppl=round(math.exp(loss), digits)) == set()
    assert found(val_loss=round(loss, 1), val_ppl=math.exp(loss)) == set()


def test_a_validation_perplexity_is_exp_of_its_own_loss():
    assert found(loss=3.25, val_loss=3.301, val_ppl=math.exp(3.25)) == {"VAL056"}
    assert found(val_loss=3.3, val_ppl=0.9) == {"VAL057"}
