"""Terminal, JSON, Markdown, brief and page of an audit say the same; its advice neither contradicts itself nor is foreign."""

import json

import pytest

from tests.reports import agreement
from tests.reports.agreement import FIXTURES

pytest.importorskip("plotly")

SOURCES = {
    "runs/zeroed_projection": (),
    "runs/overfit_tiny": (),
    "real/hf_trainer/whisper_small_hi_overfit/trainer_state.json": (),
    "real/multipowerlaw/csv_400/wsd_20000_24000.csv": (),
    "real/algoperf/resnet_sfprodigy_val_diverges/measurements.csv": (),
    "trackers/lightning_logs": ("--run", "1"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_all_formats_say_the_same_and_nothing_that_contradicts_itself(source, tmp_path):
    outputs = agreement.texts(FIXTURES / source, tmp_path / "page.html", SOURCES[source])
    assert not agreement.disagreements(outputs)


def test_what_disagrees_is_seen(tmp_path):
    outputs = agreement.texts(FIXTURES / "runs/overfit_tiny", tmp_path / "page.html")
    report = json.loads(outputs["json"])
    assert agreement.of_json(outputs["json"]).findings
    for form in ("terminal", "markdown", "brief", "page"):
        assert any(
            form in each for each in agreement.disagreements(outputs | {form: outputs[form].replace("at step 600", "at step 60")})
        )
    assert agreement.disagreements(outputs | {"page": outputs["page"].replace('<li id="f-0"', "<li")})
    assert agreement.disagreements(
        outputs | {"brief": outputs["brief"].replace("cause 1: too_little_data", "cause 1: bad_batch")}
    )
    told = ["sev2: look; nothing written so far is known to be good"]
    assert agreement.contradictions(report | {"response": told})
    assert agreement.foreign_calls({"notes": ["read as CSV: x"], "subject": ""}, {"brief": "call recorder.after_backward()"})


def test_a_log_of_lightning_is_told_the_callback_of_its_trainer(tmp_path):
    outputs = agreement.texts(FIXTURES / "trackers/lightning_logs", tmp_path / "page.html", ("--run", "2"))
    assert (
        'give the Trainer callbacks=[ckaudit.recorder.lightning.RecorderCallback("run/")]'
        in json.loads(outputs["json"])["to_judge_more"]
    )
    assert "after_backward" not in outputs["page"]
