"""TRI-1 to TRI-5 from files, by the seed's contract alone and by the Recorder: cause, first knob, where to look."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report
from tests.inventory.written_runs import Model, depth_of, is_norm, noise, steady

WRITERS = pytest.mark.parametrize("recorded", [False, True], ids=["seed", "recorder"])
GRADIENT, UPDATE, ENTROPY, SHARPEST = steady(0.1), steady(2.5e-3), steady(2.5, 0.05), steady(0.4, 0.05)


def judged(model: Model, folder: Path, *, recorded: bool) -> Report:
    return triage(model.write(folder / "run", recorded=recorded))


def assert_first(report: Report, cause: str, knob: tuple[str, ...], inspect: tuple[str, ...]) -> None:
    assert report.diagnoses, [(each.code, each.message) for each in report.findings]
    first = report.diagnoses[0]
    assert first.cause == cause, [(each.cause, each.confidence, each.evidence) for each in report.diagnoses]
    # with a log alone most of what would speak against it is not recorded: then it is the best guess
    assert first.confidence > 0.45
    assert not [word for word in knob if word not in first.knob]
    assert not [word for word in inspect if word not in first.inspect]


def advice(report: Report, code: str) -> str:
    """Return the help of a finding."""
    return next(each.help or "" for each in report.findings if each.code == code)


@pytest.mark.parametrize(("blocks", "recorded"), [(4, True), (6, False), (6, True), (12, True), (24, False)])
def test_a_healthy_model_is_told_nothing(blocks: int, recorded: bool, tmp_path: Path) -> None:
    report = judged(Model(blocks=blocks), tmp_path, recorded=recorded)
    assert report.severity in (None, "note")
    assert not report.diagnoses


PINCHES = {
    "at one block": lambda depth, step, middle, blocks: 500.0 if depth == middle else 1.0,
    "from the middle on back": lambda depth, step, middle, blocks: 500.0 if depth <= middle else 1.0,
    "late": lambda depth, step, middle, blocks: 500.0 if depth <= middle and step > 800 else 1.0,
    "over two blocks": lambda depth, step, middle, blocks: 500.0 ** min(1.0, max(0.0, (middle + 1 - depth) / 2)),
    "over some blocks": lambda depth, step, middle, blocks: 500.0 ** max(0.0, 1 - abs(depth - middle) / max(1, blocks / 4)),
}


SIZES = [(form, blocks) for form in PINCHES for blocks in (4, 6, 12) if blocks > 4 or form != "over two blocks"]
"""Of a model of four blocks, two are most of the depth: that is no pinch."""


@pytest.mark.parametrize(("form", "blocks", "recorded"), [(*size, bool(at % 2)) for at, size in enumerate(SIZES)])
def test_tri_1_a_pinch_in_the_middle(form: str, blocks: int, recorded: bool, tmp_path: Path) -> None:
    def gradient(step: int, name: str) -> float:
        depth = depth_of(name)
        return GRADIENT(step, name) / (1.0 if depth is None else PINCHES[form](depth, step, blocks // 2, blocks))

    report = judged(Model(blocks=blocks, gradient=gradient), tmp_path, recorded=recorded)
    assert_first(
        report, "path_pinched", ("residual path", "initial scale", "norm"), ("ctivation statistics", "gradient norm per layer")
    )


@pytest.mark.parametrize(
    ("late", "recorded", "blocks"), [(False, False, 4), (False, True, 12), (True, False, 12), (True, True, 4)]
)
def test_tri_1_by_the_norm_of_one_block(late: bool, blocks: int, recorded: bool, tmp_path: Path) -> None:
    def closed(step: int, name: str) -> bool:
        return depth_of(name) == blocks // 2 and (step > 800 or not late)

    model = Model(
        blocks=blocks,
        gradient=lambda step, name: GRADIENT(step, name) / (300 if closed(step, name) else 1),
        gain=lambda step, name: 0.004 if closed(step, name) else 1.0,
        # What a tensor changes by between two checkpoints is what its updates add up to.
        update=lambda step, name: 0.05 if late and is_norm(name) and depth_of(name) == blocks // 2 else UPDATE(step, name),
    )
    report = judged(model, tmp_path, recorded=recorded)
    assert_first(report, "path_pinched", ("residual path", "initial scale", "norm"), ("ctivation statistics",))
    assert any("the norm lets little through" in each.sentence for each in report.diagnoses[0].evidence)


def spiking(form: str, file: Path, points: int, rate: float | None, jumps: int, *, seed: int = 0) -> Path:
    """Write a log that is smooth for four tenths and then jumps for five points, again and again."""
    rng = np.random.default_rng(seed)
    loss = (2.2 + 2.0 * np.exp(-np.arange(points) / (0.15 * points))) * (1 + 0.01 * rng.normal(size=points))
    for jump in range(jumps):
        begin = int(points * (0.4 + 0.54 * jump / jumps))
        loss[begin : begin + 5] += np.linspace(2.0, 0.6, 5)[: points - begin]
    rows = [{"step": index + 1, "loss": round(float(each), 4)} for index, each in enumerate(loss)]
    for index, row in enumerate(rows if rate else ()):
        row["learning_rate"] = rate * min(1, (index + 1) / (0.05 * points)) * 0.5 * (1 + math.cos(0.8 * math.pi * index / points))
    if form == "csv":
        text = "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])
    elif form == "trainer":
        text = json.dumps({"log_history": rows, "global_step": points, "max_steps": points})
    else:
        named = [{"train_loss_raw" if key == "loss" else key: value for key, value in row.items()} for row in rows]
        text = "\n".join(map(json.dumps, named))
    file = file / {"csv": "log.csv", "trainer": "trainer_state.json", "scalars": "scalars.jsonl"}[form]
    file.write_text(text + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("form", "points", "rate", "jumps"),
    [
        *(("scalars", 200, rate, jumps) for rate, jumps in [(None, 3), (None, 5), (3e-4, 4), (3e-3, 3), (3e-3, 5)]),
        *((form, points, rate, 4) for form in ("csv", "trainer") for points, rate in [(200, 3e-4), (1000, None)]),
    ],
)
def test_tri_2_spikes_after_a_smooth_phase(form: str, points: int, rate: float | None, jumps: int, tmp_path: Path) -> None:
    report = triage(spiking(form, tmp_path, points, rate, jumps))
    assert_first(report, "learning_rate_too_high", ("learning rate", "warm-up"), ("Update over weight", "gradient norm"))


@pytest.mark.parametrize(
    ("largest", "share"), [("layer.2.w1", 0.7), ("layer.2.w1", 0.99), ("layer.3.ln1", 0.7), ("lm_head", 0.99)]
)
def test_tri_3_one_tensor_sets_the_norm(largest: str, share: float, tmp_path: Path) -> None:
    others = len(Model().tensors) - 1
    model = Model(
        gradient=lambda step, name: 20.0 * math.sqrt(share if name == largest else (1 - share) / others),
        facts={"clip_norm": 1.0},
        scalars=lambda step: {"grad_global_norm": 20.0 * (1 + 0.02 * noise(step))},
    )
    report = judged(model, tmp_path, recorded=True)
    assert_first(
        report, "one_tensor_dominates", ("that tensor", "learning rate", "regularise"), ("per tensor", "gradient histogram")
    )
    assert largest in report.diagnoses[0].evidence[0].sentence


@pytest.mark.parametrize(
    ("onset", "recorded", "keys", "logit"),
    [
        (100, False, True, False),
        (600, False, True, False),
        (600, False, False, True),
        (100, True, True, True),
        (600, True, True, False),
        (100, True, False, True),
    ],
)
def test_tri_4_attention_collapses(onset: int, recorded: bool, keys: bool, logit: bool, tmp_path: Path) -> None:
    def gone(step: int) -> float:
        return max(0.0, (step - onset) / 100)

    model = Model(
        entropy=lambda step, layer: max(0.02, ENTROPY(step, layer) * math.exp(-gone(step))),
        sharpest=lambda step, layer: min(0.995, SHARPEST(step, layer) + 0.6 * (1 - math.exp(-gone(step)))),
        logit=(lambda step, layer: min(180.0, 8.0 * math.exp(gone(step)))) if logit else None,
        keys=keys,
    )
    report = judged(model, tmp_path, recorded=recorded)
    assert_first(
        report, "saturated_attention", ("QK-norm path", "initial scale", "learning rate"), ("Entropy of each head", "QK grids")
    )


PARTS = {
    "a branch": lambda name: depth_of(name) == 2 and name.endswith(("w1", "w2")),
    "one matrix": lambda name: name == "layer.2.w2",
    "the embedding": lambda name: name == "embedding",
}


@pytest.mark.parametrize("part", PARTS)
@WRITERS
def test_tri_5_a_dead_path(part: str, recorded: bool, tmp_path: Path) -> None:
    model = Model(
        gradient=lambda step, name: 0.0 if PARTS[part](name) else GRADIENT(step, name),
        update=lambda step, name: 0.0 if PARTS[part](name) else UPDATE(step, name),
    )
    report = judged(model, tmp_path, recorded=recorded)
    assert_first(report, "dead_path", ("upstream gradients", "mask logic"), ("relative movement", "gradient"))


# What is weak, and not zero, shows by its movement or by its like in other blocks: the embedding of the seed's by neither.
@pytest.mark.parametrize(
    ("part", "recorded"),
    [("a branch", False), ("a branch", True), ("one matrix", False), ("one matrix", True), ("the embedding", True)],
)
def test_tri_5_a_weakly_coupled_path(part: str, recorded: bool, tmp_path: Path) -> None:
    model = Model(
        gradient=lambda step, name: GRADIENT(step, name) * (1e-3 if PARTS[part](name) else 1),
        update=lambda step, name: UPDATE(step, name) * (2e-3 if PARTS[part](name) else 1),
    )
    report = judged(model, tmp_path, recorded=recorded)
    inspect = ("relative movement", "flow of the gradient")
    assert_first(report, "path_weakly_coupled", ("gradients", "mask logic"), inspect)


@pytest.mark.parametrize("part", PARTS)
@WRITERS
def test_tri_5_a_gradient_worn_down_to_nothing(part: str, recorded: bool, tmp_path: Path) -> None:
    model = Model(
        gradient=lambda step, name: 1e-12 if PARTS[part](name) else GRADIENT(step, name),
        update=lambda step, name: 0.0 if PARTS[part](name) else UPDATE(step, name),
    )
    report = judged(model, tmp_path, recorded=recorded)
    assert report.diagnoses[0].cause == "path_weakly_coupled"
    assert "mask logic" in report.diagnoses[0].knob


def test_tri_5_without_a_cause_the_finding_has_its_row(tmp_path: Path) -> None:
    """A matrix with the gradient of its like that does not move: nothing says why, and the row says where to begin."""
    model = Model(update=lambda step, name: UPDATE(step, name) * (1e-3 if name == "layer.2.wo" else 1))
    report = judged(model, tmp_path, recorded=True)
    assert not report.diagnoses
    help_ = advice(report, "MOVE001")
    assert "upstream gradients" in help_
    assert "relative movement" in help_


def test_norms_of_the_model_are_norms() -> None:
    assert is_norm("layer.0.ln1")
    assert not is_norm("layer.0.w1")
