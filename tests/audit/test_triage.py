"""The engine from a source to a report."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from msgspec.structs import replace

from ckaudit.audit import triage, triage_run
from ckaudit.audit.confidence import CauseCandidate, confidences
from ckaudit.audit.figures import charts, shape_preserving
from ckaudit.causes import causes
from ckaudit.contract.schema.report import Chart
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.reports import render
from tests.cases import run_of

SPIKE = {
    "name": "spike",
    "scalars": {
        "train_loss_raw": {"steps": "1..400", "value": 3.0, "noise": 0.03, "set": {"60..80": 8.0}},
        "learning_rate": {"steps": "1..400", "value": 3e-3, "to": 1e-3},
    },
}


def write_run(folder: Path, losses: dict[int, float], *, checkpoints: list[int]) -> Path:
    lines = [json.dumps({"step": step, "train_loss_raw": loss}) for step, loss in losses.items()]
    (folder / "scalars.jsonl").write_text("\n".join(lines) + "\n")
    for step in checkpoints:
        text = json.dumps({"schema_version": "ck.analysis.v1", "step": step, "gradients": {"a.0.w": {"norm": 1.0}}})
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(text)
    return folder


def test_a_confidence_comes_from_prior_and_evidence_and_from_rivals() -> None:
    report = triage_run(run_of(SPIKE))
    first = report.diagnoses[0]
    odds = causes()[first.cause].prior + sum(each.weight for each in first.evidence)
    [alone] = confidences([CauseCandidate(first.cause, odds, first.explains, is_supported=True)])
    assert len(report.diagnoses) == 1 or report.diagnoses[1].confidence < first.confidence <= alone
    assert [each.confidence for each in report.diagnoses] == sorted((each.confidence for each in report.diagnoses), reverse=True)


CLIMB = {"train_loss_raw": {"steps": "1..20", "values": [*(4 - 0.2 * step for step in range(8)), *range(3, 15)]}}
CREEP = {"gpu_mem_used": {"steps": "10..1000:10", "value": 4e10, "to": 7e10, "noise": 1e8}}


@pytest.mark.parametrize(("scalars", "begin"), [(CLIMB, "No cause stands out for this"), (CREEP, "No known cause explains this")])
def test_without_a_supported_cause_the_headline_says_whether_any_is_known(scalars, begin) -> None:
    report = triage_run(run_of({"name": "x", "scalars": scalars}))
    assert not report.diagnoses
    assert report.verdict.startswith(f"{begin}: {report.findings[0].message}")


def test_a_step_before_the_trouble_is_clean() -> None:
    run = run_of(SPIKE)
    assert triage_run(run, step=59).severity is None
    assert triage_run(run, step=70).severity in ("sev1", "sev2")


def test_a_step_without_checkpoint_says_which_one_was_used(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {1: 2.0, 2: 2.0}, checkpoints=[10, 20])
    assert triage(folder, step=15).notes == ["no checkpoint at step 15: the latest before it is 10"]
    assert triage(folder, step=20).notes == []
    assert "beyond the record" in triage(folder, step=99).notes[0]


def test_a_step_before_the_record_is_a_usage_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {5: 2.0}, checkpoints=[10])
    with pytest.raises(UsageError, match="at or before step 3"):
        triage(folder, step=3)


def test_nothing_to_read_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        triage(tmp_path)
    with pytest.raises(UnreadableError, match="does not exist"):
        triage(tmp_path / "nowhere")


def test_a_broken_checkpoint_is_a_finding_and_the_others_are_judged(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {1: 2.0}, checkpoints=[10, 20])
    (folder / "analysis_checkpoint_step_00000030.json").write_text('{"schema_version": "ck.ana')
    report = triage(folder)
    assert [(finding.code, finding.file) for finding in report.findings] == [("SYN005", "analysis_checkpoint_step_00000030.json")]
    assert report.step == 20


@pytest.mark.parametrize("name", ["analysis_checkpoint_step_00000030.json", "scalars_more.jsonl"])
@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (zstandard.compress, ".zst")])
def test_a_packed_file_whose_name_does_not_say_so_is_the_headline(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], suffix: str
) -> None:
    folder = write_run(tmp_path, {1: 2.0}, checkpoints=[10, 20])
    (folder / name).write_bytes(pack(b'{"schema_version": "ck.analysis.v1", "step": 30}\n'))
    report = triage(folder)
    assert report.verdict == f"The record is broken in {name}: The file is packed, and its name does not end in {suffix}."
    assert report.step == 20


def test_a_checkpoint_under_any_name_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "statistics.json"
    path.write_text(json.dumps({"schema_version": "ck.analysis.v1", "step": 7, "loss": "NaN"}))
    assert [finding.code for finding in triage(path).findings] == ["NUM001"]


def test_down_sampling_keeps_a_spike_and_a_nan() -> None:
    values = np.ones(10_000)
    values[5_678], values[9_001] = 50.0, np.nan
    chosen = shape_preserving(values, 100)
    assert {5_678, 9_001} <= set(chosen.tolist())
    assert len(chosen) <= 100
    assert (np.diff(chosen) > 0).all()


@pytest.mark.parametrize("broken", [(), (37, 5_003)])
@pytest.mark.parametrize("points", [5, 24, 120])
def test_down_sampling_keeps_the_ends_of_the_axis(points: int, broken: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=10_000)
        lowest = int(rng.integers(0, 9_998))
        values[lowest], values[lowest + 1] = -9.0, 9.0  # in one stretch, as a rule
        for row in broken:
            values[row] = np.nan
        chosen = shape_preserving(values, points)
        assert {int(np.nanargmin(values)), int(np.nanargmax(values)), 9_999} <= set(chosen.tolist())
        assert len(chosen) <= points


def test_a_caption_has_the_numbers_of_the_record(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    losses = {step: 4.0 / step**0.2 + 0.1 * float(rng.normal()) for step in range(1, 401)}
    losses[200], losses[201] = 9.0, 0.3
    lowest = min(losses, key=losses.__getitem__)
    losses |= {step: float("nan") for step in range(390, 401)}
    (chart, *_) = triage(write_run(tmp_path, losses, checkpoints=[])).charts
    assert None not in (chart.least, chart.greatest, chart.last)
    assert (chart.least.label, chart.least.value) == (str(lowest), losses[lowest])
    assert (chart.greatest.label, chart.greatest.value) == ("200", 9.0)
    assert (chart.last.label, chart.last.value) == ("389", losses[389])


def gradients(norms: dict[str, float]) -> Chart:
    (chart,) = charts(
        run_of(
            {
                "name": "x",
                "sections": {"gradients.*.norm": {"steps": [10], "labels": list(norms), "values": [list(norms.values())]}},
            }
        )
    )
    return chart


def test_a_branch_without_gradient_is_said_beside_its_block() -> None:
    norms = {f"blocks.{block}.{part}.weight": 0.5 for block in range(3) for part in ("attn_norm", "attn.q", "mlp.up", "mlp.down")}
    assert gradients(norms).remarks == []
    cut = norms | {"blocks.1.attn.q.weight": 0.0}
    assert gradients(cut).remarks == ["", "attn: 0", ""]
    faint = norms | {"blocks.2.mlp.up.weight": 3e-9, "blocks.2.mlp.down.weight": 4e-9}
    assert gradients(faint).remarks == ["", "", "mlp: 5e-09"]
    dark = norms | {name: 0.0 for name in norms if name.startswith("blocks.0.")}
    assert gradients(dark).remarks == []


def cut_off(*, each: float = 0.0) -> dict[str, object]:
    """Return a run whose second block gets no gradient in its attention."""
    parts = ("attn_norm", "attn.q", "attn.k", "attn.v", "attn.out", "mlp_norm", "mlp.up", "mlp.down")
    labels = [f"blocks.{block}.{part}.weight" for block in range(3) for part in parts]
    row = [each if label.startswith("blocks.1.attn") else 0.5 for label in labels]
    steps = list(range(100, 1100, 100))
    return {"name": "cut off", "sections": {"gradients.*.norm": {"steps": steps, "labels": labels, "values": [row] * len(steps)}}}


def test_all_tensors_of_a_module_are_named_by_it_in_headline_table_and_answers() -> None:
    report = triage_run(run_of(cut_off()), questions=[1])
    assert report.verdict.endswith(", in all 5 tensors of blocks.1.attn")
    assert report.diagnoses[0].symptom.startswith("blocks.1.attn (all 5 tensors) gets no gradient: its norm is 0")
    answers = {answer.id: answer.sentence for phase in report.interview for answer in phase.answers}
    assert "blocks.1.attn (all 5 tensors) gets no gradient" in answers["D1.3"]
    assert not any("more)" in sentence for sentence in answers.values())
    (dead,) = [finding for finding in report.findings if finding.code == "GRAD003"]
    assert (dead.where, len(dead.also), dead.group) == ("blocks.1.attn_norm.weight", 4, "all 5 tensors of blocks.1.attn")


def test_the_machine_formats_keep_the_tensor() -> None:
    report = triage_run(run_of(cut_off()))
    (result,) = [each for each in json.loads(render(report, "sarif"))["runs"][0]["results"] if each["ruleId"] == "GRAD003"]
    assert result["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "blocks.1.attn_norm.weight"}]
    assert "blocks.1.attn_norm.weight" in render(report, "junit")
    (found,) = [each for each in json.loads(render(report, "json"))["findings"] if each["code"] == "GRAD003"]
    assert (found["where"], found["also"][0]) == ("blocks.1.attn_norm.weight", "blocks.1.attn.q.weight")
    assert "blocks.1.attn_norm.weight: blocks.1.attn" not in render(report, "github")


def test_a_fingerprint_outlives_a_change_of_the_worst_place() -> None:
    finding = triage_run(run_of(cut_off())).findings[0]
    other = replace(finding, where=finding.also[0], also=[finding.where or "", *finding.also[1:]])
    marks = {
        json.dumps(
            json.loads(render(replace(triage_run(run_of(cut_off())), findings=[each]), "sarif"))["runs"][0]["results"][0][
                "partialFingerprints"
            ]
        )
        for each in (finding, other)
    }
    assert len(marks) == 1
