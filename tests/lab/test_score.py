"""The arithmetic of the score, on verdicts made by hand."""

import math
from pathlib import Path

import pytest

from ckaudit.contract.schema.report import Diagnosis, Evidence, Finding, Report
from ckaudit.importers import import_source
from ckaudit.lab.change import Change
from ckaudit.lab.labels import SYMPTOMS
from ckaudit.lab.score.score import chosen
from ckaudit.lab.score.scoreboard import board, share
from ckaudit.lab.score.verdict import (
    ALSO,
    MISSING,
    AuditVerdict,
    FaultOutcome,
    SeenFinding,
    of_control,
    of_fault,
    verdict,
    words,
    write_table,
)
from ckaudit.lab.specs import Fault, FaultStrength
from ckaudit.lab.training_spec import Split
from ckaudit.validate.outcomes import outcomes as validate_outcomes

STEPS = (0, 100, 150, 200, 250, 300)


def fault(**changes: object) -> Fault:
    told = {
        "name": "burst",
        "title": "",
        "story": "",
        "change": Change,
        "group": "data",
        "truth": "bad_batch",
        "acceptable": ("noisy_labels",),
        "symptoms": ("loss_spike", "exploding_gradient"),
        "consequences": ("overfitting",),
        "place": ("blocks.1.*", "layer.1"),
        "dev": FaultStrength(150),
        "test": FaultStrength(200),
        "detectable": 10,
        "family": "gpt",
        "harmless": False,
    }
    return Fault(**(told | changes))  # type: ignore[arg-type]


def seen(word: str, severity: str = "sev1", first: int | None = 160, **more: object) -> SeenFinding:
    return SeenFinding(words=(word,), severity=severity, first=first, last=first, **more)  # type: ignore[arg-type]


def outcome(*found: SeenFinding, causes: tuple[str, ...] = (), places: tuple[str, ...] = (), **changes: object) -> FaultOutcome:
    return of_fault(fault(**changes), 0, 150, AuditVerdict(seen=found, causes=causes, places=places, checkpoints=STEPS))


@pytest.mark.parametrize(
    ("found", "detected"),
    [
        (seen("loss_spike"), True),
        (seen("loss_spike", first=150), True),
        (seen("loss_spike", first=149), False),
        (seen("loss_spike", first=None), True),
        (seen("loss_spike", "note"), False),
        (seen("overfitting"), False),
        (seen("weights_jump"), False),
    ],
)
def test_a_fault_is_detected_by_its_symptoms_from_its_onset_on(found: SeenFinding, *, detected: bool) -> None:
    assert outcome(found).detected == detected


def test_notes_count_in_a_column_of_their_own() -> None:
    result = outcome(seen("loss_spike", "note"))
    assert (result.detected, result.noted, result.false, result.worst) == (False, True, (), "note")


def test_the_first_cause_is_right_acceptable_or_among_three() -> None:
    told = [
        outcome(causes=causes)
        for causes in [("bad_batch",), ("noisy_labels", "bad_batch"), ("a", "b", "bad_batch"), ("a", "b", "c", "bad_batch"), ()]
    ]
    assert [each.first_right for each in told] == [True, False, False, False, False]
    assert [each.acceptable for each in told] == [True, True, False, False, False]
    assert [each.top3 for each in told] == [True, True, True, False, False]
    assert [each.cause for each in told] == ["bad_batch", "noisy_labels", "a", "a", None]


def test_a_place_is_right_in_a_finding_that_is_not_false_or_in_the_first_diagnosis() -> None:
    inside = ("blocks.1.mlp.up.weight",)
    assert outcome(seen("loss_spike", places=inside)).place_right
    assert outcome(seen("overfitting", places=("loss", "layer.1"))).place_right
    assert outcome(places=inside).place_right
    assert not outcome(seen("weights_jump", places=inside)).place_right
    assert not outcome(seen("loss_spike", "note", places=inside)).place_right
    assert not outcome(seen("loss_spike", places=("blocks.11.mlp.up.weight",))).place_right
    assert outcome(seen("loss_spike"), place=()).place_right is None


@pytest.mark.parametrize(
    ("first", "steps", "checkpoints"), [(150, 0, 0), (160, 0, 0), (161, 1, 0), (200, 40, 1), (249, 89, 1), (300, 140, 3)]
)
def test_delay_counts_from_when_it_could_be_seen(first: int, steps: int, checkpoints: int) -> None:
    result = outcome(seen("loss_spike", first=first + 50), seen("exploding_gradient", first=first))
    assert (result.delay_steps, result.delay_checkpoints) == (steps, checkpoints)


def test_without_detection_there_is_no_delay() -> None:
    assert (outcome().delay_steps, outcome().delay_checkpoints) == (None, None)


def test_false_is_what_comes_too_early_or_is_of_something_else() -> None:
    result = outcome(
        seen("loss_spike"), seen("overfitting"), seen("loss_spike", first=20), seen("weights_jump"), seen("dead_units", "note")
    )
    assert result.false == ("loss_spike", "weights_jump")


def test_a_control_may_find_what_is_expected_of_it() -> None:
    found = (seen("loss_spike", "sev0"), seen("overfitting", "sev2"), seen("dead_units", "sev2"), seen("seam_jump", "note"))
    result = of_control("c", 1, ("dead_units",), AuditVerdict(seen=found))
    assert (result.grave, result.sev2, result.notes) == (("loss_spike",), ("overfitting",), ("seam_jump",))


def test_a_board_adds_up() -> None:
    ill = [
        outcome(seen("loss_spike", first=200), causes=("bad_batch",), name="a", group="data"),
        outcome(seen("loss_spike", first=250), causes=("noisy_labels",), name="a", group="data"),
        outcome(seen("weights_jump"), causes=(), name="b", group="code", place=(), truth="loader_stuck"),
        outcome(seen("loss_spike", "note"), name="c", harmless=True),
    ]
    well = [of_control("k", seed, (), AuditVerdict(seen=found)) for seed, found in enumerate([(), (seen("loss_spike", "sev2"),)])]
    found = board("dev", ill, well)
    assert (found.all.detected.hits, found.all.detected.of) == (2, 3)
    assert (found.all.first_right.hits, found.all.acceptable.hits, found.all.top3.hits) == (1, 2, 1)
    assert (found.all.place_right.hits, found.all.place_right.of) == (0, 2)
    assert (found.all.false.hits, found.all.delay_steps, found.all.delay_checkpoints) == (1, 65.0, 1.5)
    assert [(each.name, each.detected.of) for each in found.groups] == [("code", 1), ("data", 2)]
    assert [(each.name, each.causes) for each in found.faults] == [("a", ("noisy_labels",)), ("b", ("-",))]
    assert (found.harmless.noted.hits, found.harmless.flagged.hits, found.harmless.noted.of) == (1, 0, 1)
    assert (found.healthy.grave.hits, found.healthy.sev2.hits, found.healthy.grave.of) == (0, 1, 2)
    assert found.healthy.rules == {"loss_spike": 1}
    assert found.baseline is not None
    assert (found.baseline.cause, found.baseline.first_right.hits, found.baseline.first_right.of) == ("bad_batch", 2, 3)


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_intervals_are_those_of_newcombe_1998_table_1(hits: int, of: int, low: float, high: float) -> None:
    found = share(hits, of)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_no_trials_have_no_share() -> None:
    assert (share(0, 0).share, share(0, 0).low) == (None, None)


def report(*findings: Finding, diagnoses: tuple[Diagnosis, ...] = ()) -> Report:
    return Report(
        schema_version="ck.report.v1",
        tool="",
        command="",
        subject="",
        verdict="",
        findings=list(findings),
        diagnoses=list(diagnoses),
    )


def test_two_reports_become_one_verdict() -> None:
    torn = Finding(
        code="SYN003", name="truncated", severity="sev1", message="", file="a/analysis_checkpoint_step_00000200.json.zst"
    )
    gap = Finding(code="RUN003", name="cadence_gap", severity="sev2", message="", first_step=250)
    spike = Finding(
        code="LOSS001",
        name="loss_spike",
        severity="sev1",
        message="",
        where="loss",
        first_step=160,
        last_step=170,
        also=["x"],
        path=["p"],
    )
    cause = Diagnosis(
        cause="bad_batch",
        title="",
        confidence=0.5,
        severity="sev1",
        symptom="",
        knob="",
        inspect="",
        runbook="",
        evidence=[Evidence(sentence="", weight=1.0)],
        explains=[],
        where="blocks.1",
        path=["blocks.1", "kernel"],
    )
    result = verdict(report(spike, torn, diagnoses=(cause,)), report(torn, gap), checkpoints=(0, 100))
    assert [(each.words, each.first, each.last) for each in result.seen] == [
        (("contract_violation",), 200, 200),
        (("missing_checkpoint",), 250, 250),
        (("loss_spike",), 160, 170),
    ]
    assert result.seen[2].places == ("loss", "x", "p")
    assert (result.causes, result.places) == (("bad_batch",), ("blocks.1", "kernel"))


def test_every_violation_answers_to_words_of_the_labels() -> None:
    names = {check.name for check in validate_outcomes([], [])}
    assert {*ALSO, *MISSING} <= names
    for name in names:
        assert set(words(Finding(code="X", name=name, severity="sev1", message=""))) <= SYMPTOMS.keys()


def test_trainings_are_chosen_by_name_or_by_name_and_seed() -> None:
    def ids(*splits: Split, only: str) -> list[str]:
        return [f"{each.name}.{each.seed}" for each in chosen(splits, only)]

    assert ids("dev", only="healthy_m*.1,lr_too_high") == [
        "lr_too_high.0",
        "healthy_moe.1",
        "healthy_mlp.1",
        "lr_too_high.1",
        "lr_too_high.2",
    ]
    assert ids("test", only="healthy.11") == ["healthy.11"]
    assert len(ids("dev", "test", only="")) == len(ids("dev", only="*")) + len(ids("test", only="*"))


def test_an_answer_is_called_by_its_own_name_and_not_a_violation():
    assert words(Finding(code="D4.6", name="schedule_wrong", severity="sev2", message="")) == ("schedule_wrong",)
    assert words(Finding(code="VAL999", name="anything_else", severity="sev2", message="")) == ("contract_violation",)


def test_our_table_of_a_log_holds_the_same_numbers(tmp_path: Path) -> None:
    (tmp_path / "scalars.jsonl").write_text(
        '{"schema_version":"ck.scalars.v1","step":1,"time":1700000000.5,"train_loss_raw":2.5,"learning_rate":0.1,"batch_hash":"x"}\n'
        '{"step":2,"train_loss_raw":"NaN","val_loss":2.0,"grad_global_norm":"Infinity","step_time":0.5,"dataloader_stall_frac":0.2}\n'
        '{"step":3,"train_lo'
    )
    (tmp_path / "run.json").write_text("{}")
    write_table(tmp_path, tmp_path / "log.csv")
    assert (tmp_path / "log.csv").read_text().splitlines() == [
        "step,loss,val_loss,lr,grad_norm,step_time,tokens_per_sec,timestamp,dataloader_stall_frac",
        "1,2.5,,0.1,,,,1700000000.5,",
        "2,nan,2.0,,inf,0.5,,,0.2",
    ]
    first, second = import_source(tmp_path / "log.csv").rows
    assert first == {"step": 1, "train_loss_raw": 2.5, "learning_rate": 0.1, "time": 1700000000.5}
    assert math.isnan(second.pop("train_loss_raw"))
    assert second == {"step": 2, "val_loss": 2.0, "grad_global_norm": math.inf, "step_time": 0.5, "dataloader_stall_frac": 0.2}
