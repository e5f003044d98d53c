"""What stands first: the grave before the light, the training before its record, what lasts before what came back."""

import json

from ckaudit.audit import triage
from ckaudit.audit.diagnose import first_causes, is_over, ranked
from ckaudit.audit.headline import headline, led_by_headline
from ckaudit.contract.schema.report import Diagnosis, Finding
from tests.cases import run_of

RUN = run_of({"name": "run", "scalars": {"train_loss_raw": {"steps": "1..1000", "value": 2.0}}})


def finding(code, severity="sev2", first=None, last=None):
    return Finding(code=code, name=code.lower(), severity=severity, message=code, first_step=first, last_step=last)


def cause(name, confidence, *codes, severity="sev2"):
    return Diagnosis(
        cause=name,
        title=name,
        confidence=confidence,
        severity=severity,
        symptom="s",
        knob="k",
        inspect="i",
        runbook="r",
        evidence=[],
        explains=list(codes),
    )


def test_short_means_a_tenth_of_the_record_and_over_means_well_since_a_tenth():
    assert is_over(finding("LOSS001", first=200, last=200), RUN)
    assert is_over(finding("LOSS001", first=200, last=299), RUN)
    assert not is_over(finding("LOSS001", first=200, last=300), RUN)
    assert not is_over(finding("LOSS001", first=950, last=950), RUN)
    assert not is_over(finding("LOSS001"), RUN)


def test_a_path_dead_for_half_the_run_stands_before_a_jump_that_came_back():
    jump, dead = finding("LOSS001", first=100, last=101), finding("GRAD003", first=500, last=1000)
    assert ranked([jump, dead], RUN) == [dead, jump]
    stop = finding("NUM001", "sev0", 100, 100)
    assert ranked([jump, dead, stop], RUN) == [stop, dead, jump]


def test_the_training_stands_before_a_slip_of_its_writer_that_is_as_grave():
    slip, spike = finding("VAL011", "sev1", 0, 1000), finding("LOSS001", "sev1", 400, 400)
    assert ranked([slip, spike], RUN) == [spike, slip]
    assert ranked([finding("LOSS001", "sev2", 400, 400), slip], RUN)[0] == slip


def test_a_cause_of_what_came_back_yields_to_a_likely_one_of_what_lasts_and_is_as_grave():
    found = [finding("LOSS001", first=100, last=101), finding("GRAD003", first=500, last=1000)]
    batch, path = cause("bad_batch", 0.95, "LOSS001"), cause("dead_path", 0.8, "GRAD003")
    assert first_causes([batch, path], found, RUN) == [path, batch]
    unlikely = cause("dead_path", 0.3, "GRAD003")
    assert first_causes([batch, unlikely], found, RUN) == [batch, unlikely]
    grave = cause("bad_batch", 0.95, "LOSS001", severity="sev0")
    assert first_causes([grave, path], found, RUN) == [grave, path]


def test_a_sure_cause_of_what_came_back_stands_before_all_that_are_not_sure():
    found = [finding("LOSS001", first=100, last=101), finding("GRAD003", first=500, last=1000), finding("ACT001", last=1000)]
    batch, path, units = (
        cause("bad_batch", 0.87, "LOSS001"),
        cause("dead_path", 0.6, "GRAD003"),
        cause("dead_units", 0.3, "ACT001"),
    )
    assert first_causes([batch, path, units], found, RUN) == [batch, path, units]
    sure = cause("dead_path", 0.75, "GRAD003")
    assert first_causes([batch, sure, units], found, RUN) == [sure, batch, units]
    unlikely = cause("bad_batch", 0.3, "LOSS001")
    assert first_causes([path, unlikely, units], found, RUN) == [path, unlikely, units]


def test_spikes_that_go_on_through_the_run_are_not_over():
    found = [*(finding("LOSS001", first=step, last=step) for step in (100, 400, 700)), finding("GRAD003", first=500, last=1000)]
    spikes, path = cause("rate_too_high", 0.95, "LOSS001"), cause("dead_path", 0.8, "GRAD003")
    assert first_causes([spikes, path], found, RUN) == [spikes, path]


def test_a_cause_of_the_writer_comes_last():
    found = [finding("VAL011", "sev1", 0, 1000), finding("LOSS001", first=100, last=101)]
    writer, batch = cause("writer", 0.99, "VAL011", severity="sev1"), cause("bad_batch", 0.3, "LOSS001")
    assert first_causes([writer, batch], found, RUN) == [batch, writer]


def test_a_nan_leads_the_verdict_where_every_file_has_a_slip_of_its_writer(tmp_path):
    lines = [{"step": step, "train_loss_raw": "NaN" if step == 150 else 3 - step / 200} for step in range(1, 281)]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in range(10, 290, 10):
        document = {"schema_version": "ck.analysis.v1", "step": step, "weights": {"a.w": {"mean": 0.0, "std": -1.0}}}
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    report = triage(tmp_path)
    assert report.severity == "sev0"
    assert report.findings[0].code == "NUM001"
    assert not report.verdict.startswith("The record is broken")
    (slip,) = [each for each in report.findings if each.code == "SCH007"]
    assert slip.message.endswith("(the same in 27 more files from step 10 to 280)")
    assert (slip.first_step, slip.last_step, len(slip.also)) == (10, 280, 27)
    assert report.response[0].startswith("sev0")


def test_a_slip_in_every_file_alone_asks_for_no_rollback(tmp_path):
    lines = [{"step": step, "train_loss_raw": 3 - step / 200} for step in range(1, 281)]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in range(10, 290, 10):
        document = {"schema_version": "ck.analysis.v1", "step": step, "weights": {"a.w": {"mean": 0.0, "std": -1.0}}}
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    report = triage(tmp_path)
    assert [each.code for each in report.findings if each.severity != "note" and each.code.startswith("SCH")] == ["SCH007"]
    assert not any("rollback" in line or "roll back" in line for line in report.response)


def test_the_headline_is_of_the_gravest_finding_and_not_of_a_sure_cause_of_something_lighter():
    broken, still = finding("NUM001", "sev0", 40, 400), finding("MOVE001", "sev2", 30, 400)
    path, guess = cause("a path is cut", 0.8, "MOVE001"), cause("an operation is undefined", 0.4, "NUM001", severity="sev0")
    assert headline([], [path, guess], [broken, still], RUN) == "No cause stands out for this: NUM001"
    likelier = cause("an operation is undefined", 0.6, "NUM001", severity="sev0")
    assert headline([], [path, likelier], [broken, still], RUN).startswith("an operation is undefined")
    assert headline([], [path], [still], RUN).startswith("a path is cut")
    assert led_by_headline([path, likelier], [broken, still]) == [likelier, path]
    assert led_by_headline([path, guess], [broken, still]) == [path, guess]
