"""Every rule is drawn well and ill, and finds what its ill drawing shows, but not in the healthy one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from ckaudit.audit.judge import apply_rules
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.explain import explain
from ckaudit.explain.catalogue_pages import drawn_shapes, shapes_of
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.catalogue import entries
from ckaudit.reports.terminal.explain import resampled
from ckaudit.rules import rules
from ckaudit.rules.rule import FACTS, Hit, Rule
from ckaudit.run.series import Series
from tests.cases import run_of
from tests.loops import for_each

BY_NAME = {rule.name: rule for rule in rules().values()}
GRAVITY = ("sev0", "sev1", "sev2", "note")
Beside = float | Callable[[np.ndarray, np.ndarray], Any]


@dataclass(frozen=True)
class RuleInputs:
    """What a rule is told beside the series that is drawn.

    `points` lays the drawing out: None as the points stand, a number by straight lines between them. The first is at step
    `start`, the others `every` steps apart. `along` is the label of each point, where the drawing goes through the model.
    `others` are further columns of the series that is drawn, with their value; None: the same. What stands `beside` it has the
    same columns, or those of `beside_of`. With `whole` the drawing is the only scalar of a run that is judged as any other.
    """

    points: int | None = 40
    every: int = 10
    start: int = 10
    along: str = ""
    label: str = ""
    others: dict[str, float | None] = field(default_factory=dict)
    beside_of: tuple[str, ...] = ()
    whole: bool = False
    beside: dict[str, Beside] = field(default_factory=dict)
    facts: dict[str, Any] | None = None


MATRIX = {"tensors": {"blocks.0.mlp.weight": {"shape": [512, 512]}}}
MATRICES = {"tensors": {f"blocks.{block}.mlp.weight": {"shape": [512, 512]} for block in (0, 1)}}
RESUMED = RuleInputs(
    points=None, start=1, every=1, whole=True, facts={"sessions": [{"start": 1.0}, {"start": 2.0, "resumed_from": 12}]}
)
TOLD = {
    "barely_moving": RuleInputs(beside={"update_to_weight": lambda _, values: values / 20, "learning_rate": 1e-3}),
    "contradicted_claim": RuleInputs(beside={"nearest_allowed_value": 1.0}),
    "dominant_tensor": RuleInputs(beside={"clip_coefficient": 0.05}),
    "frequent_clipping": RuleInputs(beside={"clip_coefficient": 0.05}),
    "frozen_parameter": RuleInputs(
        label="drawn",
        others={"b": 0.03, "c": 0.03},
        beside={"gradient_norm": 1.0},
        beside_of=("b", "c"),
        facts={"tensors": {name: {} for name in ("drawn", "b", "c")}},
    ),
    "gap_widens": RuleInputs(beside={"val_loss": lambda steps, _: 4 - steps / steps[-1], "val_rise": 0.0}),
    "gradient_noise_too_high": RuleInputs(
        beside={"tokens_per_update": 64.0, "train_loss_raw": lambda steps, _: 3.0 + 0.5 * (steps // 10 % 2)},
        facts={"sequence_length": 64},
    ),
    "hidden_nonfinite": RuleInputs(
        points=None, beside={"grad_global_norm": lambda _, values: np.where(values == 0, np.nan, 1.0)}
    ),
    "initial_loss_off": RuleInputs(
        points=None,
        start=1,
        beside={"initial_loss_excess": lambda _, values: values[:1] - np.log(50257)},
        facts={"vocabulary": 50257},
    ),
    "input_drift": RuleInputs(points=None),
    "updates_rounded_away": RuleInputs(label="blocks.0.mlp.weight", facts=MATRIX),
    "loss_inputs_wrong": RuleInputs(label="probabilities"),
    "loss_term_not_learnt": RuleInputs(label="cross_entropy/5", others={"mse_loss/4": 0.9}),
    "input_scale_off": RuleInputs(beside={"activation_rms": 1.0}),
    "off_its_playbook": RuleInputs(label="checkpoint_time"),
    "undecided_unit": RuleInputs(label="overflow_rate"),
    "initialization_lost": RuleInputs(label="a", others={"b": None, "c": None, "d": None}),
    "starved_branch": RuleInputs(label="blocks.0.attn.q.weight", others={"blocks.0.mlp.up.weight": 1.0}),
    "layer_not_contributing": RuleInputs(along="blocks.{}.mlp.weight", beside={"learning_rate": 1e-3}),
    "learning_rate_jump": RuleInputs(points=120),
    "learning_rate_zero": RuleInputs(points=400, every=1),
    "loss_below_floor": RuleInputs(points=400, every=1, beside={"unigram_entropy": 3.3}),
    "loss_not_falling": RuleInputs(points=400, every=1, beside={"unigram_entropy": 3.3}, facts={"vocabulary": 100}),
    "loss_rises": RuleInputs(points=400, every=1),
    "loss_spike": RuleInputs(points=400, every=1, whole=True),
    "mask_leak": RuleInputs(beside={"target_shift_match": 1.0}),
    "missing_in_optimizer": RuleInputs(label="blocks.0.mlp.weight"),
    "optimizer_state_reset": RESUMED,
    "overflow": RuleInputs(points=None, every=100),
    "probe_jump": RuleInputs(points=None, every=100, beside={"loss_over_median": 1.0}),
    "recording_overhead": RuleInputs(beside={"recording_seconds": 100.0}),
    "redundant_heads": RuleInputs(
        label="layer.0/head.0", others={f"layer.0/head.{head}": None for head in (1, 2, 3)}, beside={"attention_evenness": 0.5}
    ),
    "repeated_batch": RuleInputs(points=400, every=1, start=1, beside={"train_loss_raw": 2.0}),
    "saturated_units": RuleInputs(beside={"activation_max_abs": 1.0}),
    "schedule_off_plan": RuleInputs(facts={"planned_learning_rate": [[10, 0], [140, 6e-4], [400, 0]]}),
    "posterior_collapse": RuleInputs(label="kl", others={"reconstruction": 80.0}),
    "discriminator_wins": RuleInputs(label="discriminator", others={"generator": 5.0}),
    "return_lost": RuleInputs(label="ep_rew_mean"),
    "return_stands": RuleInputs(label="ep_rew_mean", points=400, every=1),
    "score_stands": RuleInputs(label="val_accuracy"),
    "seam_jump": RESUMED,
    "step_time_jump": RuleInputs(points=400, every=1),
    "train_val_inverted": RuleInputs(
        beside={"train_loss_raw": lambda steps, _: resampled([5.1, 3.9, 3.1, 2.7, 2.5, 2.4], len(steps))},
        facts={"vocabulary": 50257},
    ),
    "update_out_of_band": RuleInputs(beside={"learning_rate": 1e-3}),
    "unsure_though_right": RuleInputs(
        label="val_loss",
        beside={"microbench_score": lambda steps, _: np.minimum(0.99, np.linspace(0.6, 1.4, len(steps)))},
        beside_of=("val_acc",),
    ),
    "updates_held_back": RuleInputs(label="blocks.0.mlp.weight", beside={"optimizer_adapts": 1.0, "grad_global_norm": 0.7}),
    "validation_noise": RuleInputs(points=None, beside={"learning_rate": 0.0}),
    "vanishing_gradient": RuleInputs(along="block.{}"),
    "weight_scale_off": RuleInputs(start=0, label="blocks.0.mlp.weight", others={"blocks.1.mlp.weight": None}, facts=MATRICES),
    "weights_alike": RuleInputs(label="blocks.0.mlp.weight", beside={"weight_norm": 10.0}, facts=MATRIX),
    "decay_outweighs_learning": RuleInputs(label="blocks.0.mlp.weight", facts=MATRIX),
    "weights_grow": RuleInputs(label="blocks.0.mlp.weight", others={"blocks.1.mlp.weight": None}, facts=MATRICES),
    "weights_jump": RuleInputs(points=None, others={"b": 0.03, "c": 0.03}, beside={"weight_norm": 50.0, "learning_rate": 1e-3}),
}
ELSEWHERE = {
    "dropout_rate_high": "draws one number of each of several runs",
    "missing_checkpoint": "draws the steps between checkpoints, which the rule counts itself",
    "weights_not_as_saved": "draws the norms of checkpoints, which the rule holds against those of a session",
    "parameter_count_changed": "draws how many tensors there are, which the rule counts itself",
    "embedding_not_tied": "draws how many matrices there are, which the rule counts itself",
}


def judged(rule: Rule, values: tuple[float, ...], told: RuleInputs) -> str | None:
    """Return the gravest that a rule says of a drawing, None for nothing."""
    name = shapes_of(rule).of.partition(",")[0].partition(" of ")[0]
    assert name in {metric.name for metric in rule.metrics}, f"{name} is no metric of {rule.name}"
    line = np.array(values if told.points is None or told.along else resampled(values, told.points), float)
    steps = told.start + told.every * np.arange(40 if told.along else len(line))
    if told.whole:
        run = run_of({"name": "", "facts": told.facts, "scalars": {name: {"steps": steps.tolist(), "values": line.tolist()}}})
        found: list[Any] = apply_rules(run, [rule]).findings
    else:
        inputs = [_input(each, name, steps, line, told) for each in (*rule.needs, *rule.wants)]
        found = [each for each in rule.function(*inputs) if isinstance(each, Hit)]
    return min((each.severity for each in found), key=GRAVITY.index, default=None)


def _input(wanted: Any, name: str, steps: np.ndarray, line: np.ndarray, told: RuleInputs) -> Manifest | Series | None:
    """Return what a rule is given for one of its needs or wants: the drawing, what stands beside it, or nothing."""
    if wanted is FACTS:
        return msgspec.convert({"schema_version": "ck.run.v1", **(told.facts or {})}, Manifest)
    labels = [told.label or name, *told.others]
    if wanted.name != name:
        if wanted.name not in told.beside:
            return None
        given = told.beside[wanted.name]
        column = np.asarray(given(steps, line) if callable(given) else np.full(len(steps), given), float)
        of = list(told.beside_of) or labels
        return _series(wanted, steps[: len(column)], of, np.repeat(column[:, None], len(of), axis=1))
    if told.along:
        return _series(wanted, steps, [told.along.format(place) for place in range(len(line))], np.tile(line, (len(steps), 1)))
    columns = [line, *(line if value is None else np.full(len(line), value) for value in told.others.values())]
    return _series(wanted, steps, labels, np.stack(columns, axis=1))


def _series(metric: Metric, steps: np.ndarray, labels: list[str], values: np.ndarray) -> Series:
    return Series(metric.name, metric.unit, steps, tuple(labels), values, np.ones(values.shape, bool))


@for_each("name", BY_NAME)
def test_a_rule_is_drawn_well_and_ill(name: str) -> None:
    rule = BY_NAME[name]
    (page,) = [each for each in explain([rule.code]) if each.kind == "rule"]
    assert page.shapes is not None
    assert page.shapes.good_values != page.shapes.bad_values
    assert min(len(page.shapes.good_values), len(page.shapes.bad_values)) >= 6


@for_each("name", sorted(set(BY_NAME) - set(ELSEWHERE)))
def test_a_rule_finds_its_ill_drawing_and_not_the_healthy_one(name: str) -> None:
    rule, told = BY_NAME[name], TOLD.get(name, RuleInputs())
    shapes = shapes_of(rule)
    well, ill = judged(rule, shapes.good_values, told), judged(rule, shapes.bad_values, told)
    assert ill is not None
    assert well in (None, "note")
    assert well is None or GRAVITY.index(ill) < GRAVITY.index(well)


def test_a_drawing_of_its_own_is_of_a_rule_and_needed() -> None:
    assert set(drawn_shapes()) <= set(BY_NAME)
    for name in set(BY_NAME) - set(drawn_shapes()):
        assert (*BY_NAME[name].needs, *BY_NAME[name].wants)[0].name in entries()
    assert set(TOLD) | set(ELSEWHERE) <= set(BY_NAME)
    assert {each.of for each in drawn_shapes().values()} & set(metrics())
