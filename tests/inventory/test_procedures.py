"""Rows that are a schedule, a procedure, advice or a way to look: what is done with data, and what is not."""

import tomllib
from functools import cache

import pytest

from ckaudit.audit.drop import benchmark_drop_of
from ckaudit.audit.drop.guide import GUIDE
from ckaudit.audit.load_run import open_run
from ckaudit.contract.cadence import is_due
from ckaudit.questions import questions
from ckaudit.questions.question import MAP
from ckaudit.recorder.loop.triggers import EventDetector, EventThresholds
from ckaudit.reports import render
from tests.cases import run_of
from tests.inventory.sources import FIXTURES, HERE, report, table

DROPS = table("drops")
CASES = {case["name"]: case for case in DROPS["case"]}
GATES = ("SR-1", "SR-2", "SR-3", "SR-4")
QUIET = "nothing changed"
# Each row of the guide: words that its advice has to hold, and a condition that may be missing.
GUIDE_ROWS = {
    "ARC-1": (("128 tokens", "32k to 256k", "a sixth", "sparse"), "attention"),
    "ARC-2": (("671 billion", "37 billion", "256 experts", "80 layers", "744 billion", "40 billion"), "experts"),
    "ARC-3": (("qk-norm", "learning rate", "entropy"), "attention"),
    "ME-1": (("depth", "width", "equal parameters", "little within a wide range"), ""),
    "ME-2": (("64 heads in place of 128", "83 %", "128k"), "attention"),
    "ME-3": (("capacity factor", "1.25", "1 %"), "experts"),
    "ME-4": (("window", "full attention", "a sixth"), "attention"),
}
CADENCE = {"CAD-1": (1, 100, 10), "CAD-2": (101, 1_000, 50), "CAD-3": (1_001, 10_000, 200), "CAD-4": (10_001, 100_000, 1_000)}
# Each way of the map: a question of its phase, a run where that is good, one where it is not.
WAYS = {
    "MAP-1": ("D1.1", "run/experts_two_ranks", "run/nan_batch"),
    "MAP-2": ("D1.2", "run/experts_two_ranks", "run/lr_too_high"),
    "MAP-3": ("D3.1", "run/experts_two_ranks", "run/lr_too_high"),
    "MAP-4": (
        "MP-4",
        "own: what is known of seen text is known of other text",
        "questions/memorization: seen text is known by heart, other is not",
    ),
    "MAP-5": ("D4.1", "run/healthy", "run/lr_too_high"),
    "MAP-6": ("D5.2", "real/algoperf/resnet_baseline_clean/measurements.csv", "run/overfit_tiny"),
    "MAP-7": ("D6.3", "questions/readiness: loss falls, format improves", "questions/readiness: loss falls, format is ignored"),
}
WORKFLOW = ("WF-1", "WF-2", "WF-3", "WF-4")
TRIGGERS = {"TRG-1": "loss_spike", "TRG-2": "grad_norm", "TRG-3": "dead_parameter"}
ROWS = (*CADENCE, *TRIGGERS, *WAYS, *WORKFLOW, *GATES, *GUIDE_ROWS)
SMALL_PARTS = [
    ("rules/token_drift: junk for two checkpoints", "data"),
    ("rules/mask_leak: all heads of a model that predicts the next token", "behaviour"),
    ("rules/straggler: the second rank is three times as slow", "hardware"),
    ("rules/nonfinite_values: weights of three tensors, one finding", "numerics"),
    ("run/overfit_tiny", "evaluation"),
    ("run/lr_too_high", "numerics"),
]


@cache
def dropped(name, *without):
    made = {kind: dict(DROPS["base"][kind]) for kind in ("facts", "scalars", "texts")}
    for kind in made:
        made[kind] |= CASES[name].get(kind, {})
    for scalar in without:
        del made["scalars"][scalar]
    return benchmark_drop_of(run_of({"name": name, **made}))


@pytest.mark.parametrize("row", CADENCE)
def test_checkpoints_come_in_the_distance_of_the_row(row):
    first, last, every = CADENCE[row]
    due = [step for step in range(first, last + 1) if is_due(step)]
    assert due == [step for step in range(1, last + 1) if step >= first and step % every == 0]
    run = open_run(FIXTURES / "runs" / "healthy", reads=frozenset({"loss"}), progress=None)
    assert {step for step in due if step <= 2_000} <= set(run.checkpoint_steps.tolist())


def test_a_checkpoint_that_was_due_and_is_missing_is_found():
    (check,) = [each for each in report("run/healthy").checks if each.code == "FILE001"]
    assert check.outcome == "passed"
    assert "FILE001" in {each.code for each in report("rules/missing_checkpoint: two of the tens are gone").findings}


@pytest.mark.parametrize(
    ("row", "calm", "event"),
    [
        ("TRG-1", (1.999, 1.0, {"w": 1.0}), (2.001, 1.0, {"w": 1.0})),
        ("TRG-2", (1.0, 9.99, {"w": 1.0}), (1.0, 10.01, {"w": 1.0})),
        ("TRG-3", (1.0, 1.0, {"w": 1e-9}), (1.0, 1.0, {"w": 9e-11})),
    ],
)
def test_an_event_asks_for_a_checkpoint(row, calm, event):
    for numbers, expected in ((calm, []), (event, [TRIGGERS[row]])):
        events = EventDetector(EventThresholds())
        assert not any(events.observe(1.0, 1.0, {"w": 1.0}) for _ in range(60))
        assert events.observe(*numbers) == expected


@pytest.mark.parametrize(("row", "run"), [("TRG-1", "lr_too_high"), ("TRG-2", "no_warmup_spike"), ("TRG-3", "zeroed_projection")])
def test_recorded_trainings_have_the_checkpoint_of_their_event(row, run):
    opened = [open_run(FIXTURES / "runs" / each, reads=frozenset({"loss"}), progress=None) for each in (run, "healthy")]
    ill, well = ({trigger for event in each.events for trigger in event.triggers} for each in opened)
    assert TRIGGERS[row] in ill
    assert not well


@pytest.mark.parametrize("row", WAYS)
def test_a_way_of_the_map_leads_to_what_was_recorded_and_else_to_how_to_record_it(row):
    question, good, bad = WAYS[row]
    (way,) = [each for each in MAP if each.id == row]
    assert questions()[question].phase in way.phases
    pointed = {}
    for source in (good, bad, "own: nothing but the share of padding"):
        found = report(source, question if source.startswith("questions/") else "")
        pointed[source] = next(each for phase in found.interview for each in phase.pointers if each.id == row)
        words = {each.id: each.word for phase in found.interview for each in phase.answers}
        assert words[question] == ("good" if source == good else "bad" if source == bad else "not_recorded")
    *recorded, (empty, lost) = pointed.items()
    if row == "MAP-5":
        assert recorded[0][1].command.endswith("healthy -v")
        assert recorded[1][1].command.endswith("lr_too_high --event 77")
        return
    for _, pointer in recorded:
        shown = set(pointer.command.split()[3:]) & set(way.metrics)
        assert pointer.command.startswith("ckaudit metrics")
        assert shown
    assert empty
    assert lost.command.startswith("ckaudit coverage")
    assert lost.why


def test_corruption_is_contained_first():
    action, _, save, replay = report("run/nan_batch").response
    assert action.startswith("sev0: stop the training")
    assert action.endswith("before step 150 are good (validation is lowest at step 100)")
    assert "steps 100 to 200" in save
    assert "--event 150" in save
    assert "before step 150" in replay
    assert report("lab/loss_scale_storm.0").response[0].startswith("sev0: stop")
    assert report("run/healthy").response == []
    assert report("run/float16_overflow").response == []


@pytest.mark.parametrize(("source", "part"), SMALL_PARTS)
def test_the_part_of_the_stack_that_was_ill_first_is_named(source, part):
    assert report(source).response[1].startswith(f"look at: {part} since step")


def test_what_is_fixed_is_replayed():
    found = report("own: a fixed batch was pinned before the loss went up for good").response
    assert "the fixed batch must cost 2.125 nats/token, as at step 150" in found[3]
    jump = report("rules/probe_jump: the fixed batch costs half more, and the training loss saw nothing")
    other = report("rules/evaluation_artifact_changed: another tokenizer from step 200 on")
    assert {"PRB002"} <= {each.code for each in jump.findings}
    assert {"EVAL001"} <= {each.code for each in other.findings}
    judged = {each.code: each.outcome for each in report("run/experts_two_ranks").checks}
    assert (judged["PRB002"], judged["EVAL001"]) == ("passed", "passed")


def test_a_benchmark_that_fell_is_explained_in_order():
    assert "--benchmark-drop" in report("own: a benchmark falls and stays low").response[-1]
    assert report("own: a benchmark goes on rising").response == []
    assert {each.code: each.outcome for each in report("own: a benchmark goes on rising").checks}["EVAL002"] == "passed"


@pytest.mark.parametrize("name", CASES)
def test_the_first_gate_that_fails_is_the_answer(name):
    found = dropped(name)
    assert [gate.row for gate in found.gates] == list(GATES)
    assert [gate.outcome for gate in found.gates] == CASES[name]["gates"]
    assert (found.answer, found.provisional) == (CASES[name]["answer"], False)
    assert next(gate for gate in found.gates if gate.row == found.answer).do


@pytest.mark.parametrize("row", GATES)
def test_every_gate_is_the_answer_once_and_passes_or_waits_once(row):
    outcomes = {case["gates"][GATES.index(row)] for case in CASES.values()}
    assert row in {case["answer"] for case in CASES.values()}
    assert outcomes >= ({"advice", "not_reached"} if row == "SR-4" else {"failed", "passed"})


@pytest.mark.parametrize("row", GUIDE_ROWS)
def test_advice_on_architecture_comes_with_its_facts_and_only_behind_the_gates(row):
    words, condition = GUIDE_ROWS[row]
    (advice,) = [each for each in GUIDE if each.row == row]
    shown, kept = render(dropped(QUIET), "markdown"), render(dropped("another tokenizer"), "markdown")
    part = shown.partition(f"**{row} ")[2].partition("**ME" if row.startswith("ARC-3") else "\n**")[0]
    text = " ".join(part.split()).lower()
    assert not [word for word in words if word not in text], text
    assert f"**{row} " not in kept
    assert f"**{row} " not in render(dropped("hotter attention"), "markdown")
    assert advice.only_with == condition
    if condition == "experts":
        dense = {each.row: each.not_applicable for each in dropped(QUIET, "moe_drop_rate").guide}
        assert dense[row]
        assert f"**{row} " not in render(dropped(QUIET, "moe_drop_rate"), "markdown")


def test_the_tables_are_the_only_place_of_their_rows():
    names = [path.stem for path in HERE.glob("*.toml")]
    rows = [row for name in names for row in tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8")) if "-" in row]
    assert not set(rows) & set(ROWS)
