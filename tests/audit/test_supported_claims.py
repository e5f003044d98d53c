"""No first cause says what the record cannot show: half precision, a resume, a value that is not finite, wrong labels."""

import re
from typing import Any

import pytest

from ckaudit.audit import triage_run
from ckaudit.contract.schema.report import Report
from ckaudit.run.column_builder import DTYPES
from tests.cases import run_of

STEPS = {"steps": "1..400"}
FALL = STEPS | {"value": 4.0, "to": 2.0, "noise": 0.01}
WEIGHTS = [f"blocks.{block}.{part}.weight" for block in range(4) for part in ("attn", "mlp")]
FLOAT32 = DTYPES.index("float32")


def judged(scalars: dict[str, Any], sections: dict[str, Any] | None = None, **facts: Any) -> Report:
    case = {"name": "x", "scalars": {name: STEPS | spec for name, spec in scalars.items()}, "sections": sections or {}}
    return triage_run(run_of(case | ({"facts": facts} if facts else {})))


def told(report: Report) -> str:
    """Return the causes, with what they say and advise, without their runbooks."""
    parts = [
        (each.cause, each.title, each.knob, each.inspect, *(one.sentence for one in each.evidence if one.weight > 0))
        for each in report.diagnoses
    ]
    return " ".join(word for each in parts for word in each)


ILL: dict[str, dict[str, Any]] = {
    "the rate jumps tenfold": {"train_loss_raw": FALL, "learning_rate": {"value": 1e-3, "set": {"200..400": 1e-2}}},
    "the rate jumps and falls on": {
        "train_loss_raw": FALL | {"set": {"200..230": 5.0}},
        "learning_rate": {"value": 1e-3, "to": 5e-4, "set": {f"{step}": 1e-2 - 1.25e-5 * step for step in range(200, 401)}},
    },
    "the loss jumps and comes back": {"train_loss_raw": FALL | {"set": {"200..206": 6.0}}},
    "the loss jumps and stays": {"train_loss_raw": FALL | {"set": {"200..400": 6.0}}},
    "the loss is flat": {"train_loss_raw": {"value": 4.0, "noise": 0.01}},
    "the gradient explodes": {
        "train_loss_raw": FALL,
        "grad_global_norm": {"value": 1.0, "noise": 0.05, "set": {"200..400": 500.0}},
    },
    "updates overflow": {"train_loss_raw": FALL, "overflow_rate": {"value": 20.0}},
    "steps are slow": {"train_loss_raw": FALL, "step_time": {"value": 1.0, "noise": 0.02, "set": {"200..400": 3.0}}},
    "validation is 0 where nothing is evaluated": {
        "train_loss_raw": FALL,
        "val_loss": {"value": 0.0, "set": {"100": 3.6, "200": 3.1, "300": 2.6, "400": 2.1}},
    },
    "validation is 0 throughout": {"train_loss_raw": FALL, "val_loss": {"value": 0.0}},
}


@pytest.mark.parametrize("name", ILL)
def test_no_resume_is_blamed_in_a_log_without_sessions(name: str) -> None:
    report = judged(ILL[name])
    assert not [each.cause for each in report.diagnoses if re.search("resume|restored|state_lost", each.cause)]
    assert "taken up again" not in told(report)


@pytest.mark.parametrize("name", ILL)
def test_nothing_is_said_of_values_that_are_not_finite_where_all_are(name: str) -> None:
    assert "not finite" not in told(judged(ILL[name]))


@pytest.mark.parametrize("name", ILL)
def test_no_scale_is_blamed_where_none_is_recorded(name: str) -> None:
    assert not re.search(r"loss scale|scaler|half precision", told(judged(ILL[name])))


@pytest.mark.parametrize("name", [name for name in ILL if name.startswith("validation")])
def test_labels_are_not_called_noisy_for_evaluations_that_never_were(name: str) -> None:
    assert "noisy_labels" not in {each.cause for each in judged(ILL[name]).diagnoses}


@pytest.mark.parametrize("name", ILL)
def test_every_cause_has_a_reason_of_its_own(name: str) -> None:
    for each in judged(ILL[name]).diagnoses:
        assert any(one.weight > 0 for one in each.evidence)


def table(value: float, **others: float) -> dict[str, Any]:
    """Return a section that is the same at five checkpoints, but for some tensors."""
    return {"steps": [10, 100, 200, 300, 400], "labels": WEIGHTS, "values": [[others.get(name, value) for name in WEIGHTS]] * 5}


IN_SINGLE: dict[str, dict[str, Any]] = {
    "many gradients are partly zero": {"gradients.*.norm": table(1e-12), "gradients.*.zero_fraction": table(0.4)},
    "a gradient is zero": {
        "gradients.*.norm": table(0.1, **{WEIGHTS[3]: 0.0}),
        "gradients.*.zero_fraction": table(0.0, **{WEIGHTS[3]: 1.0}),
    },
    "nothing moves": {"gradients.*.norm": table(0.1), "weight_deltas.*.norm": table(0.0)},
}


@pytest.mark.parametrize("name", IN_SINGLE)
def test_a_run_in_single_precision_is_never_told_of_half_precision(name: str) -> None:
    types = {"weights.*.dtype": table(FLOAT32), "activations.*.dtype": table(FLOAT32)}
    report = judged({"train_loss_raw": {"value": 4.0, "noise": 0.01}, "loss_scale": {"value": 1.0}}, IN_SINGLE[name] | types)
    text = told(report) + " ".join(f"{each.message} {each.help or ''}" for each in report.findings)
    assert not re.search(r"half precision|bfloat16|float16|loss scale", text)
