"""`--unit`: which unit a share was logged in, where its values do not say it."""

import json

import pytest

from ckaudit.cli.run import run

RATE = [0.12, 0.10, 0.12, 0.15, 0.14, 0.13]


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("step,overflow_rate\n" + "".join(f"{100 * i},{x}\n" for i, x in enumerate(RATE)))
    return "log.csv"


def codes(capfd):
    return {(each["code"], each["severity"]) for each in json.loads(capfd.readouterr().out)["findings"]}


def test_triage_asks_for_the_unit_and_takes_it(log, capfd):
    run(["triage", log, "--format", "json"])
    assert codes(capfd) == {("UNIT001", "sev2")}
    run(["triage", log, "--format", "json", "--unit", "overflow_rate=percent"])
    assert codes(capfd) == set()
    run(["triage", log, "--format", "json", "--unit", "overflow_rate=fraction"])
    assert {code for code, severity in codes(capfd) if severity in ("sev0", "sev1")} == {"AMP001"}


def test_import_writes_the_catalogues_unit(log, tmp_path, capfd):
    assert run(["import", log, "--unit", "overflow_rate=fraction", "-o", "run"]) == 0
    assert "overflow_rate was logged in fraction" in capfd.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run/scalars.jsonl").read_text().splitlines()]
    assert [line["overflow_rate"] for line in lines] == pytest.approx([100 * each for each in RATE])


def test_validate_blames_no_share_for_the_unit_that_was_said(tmp_path, capfd):
    (tmp_path / "analysis_checkpoint_step_00000010.json").write_text(
        json.dumps({"schema_version": "ck.analysis.v1", "step": 10, "scalars": {"mfu": 55.0, "source_mix_share/web": 30.0}})
    )
    run(["validate", str(tmp_path), "--format", "json"])
    assert {"VAL036", "VAL062"} <= {code for code, _ in codes(capfd)}
    run(["validate", str(tmp_path), "--format", "json", "--unit", "mfu=percent", "--unit", "source_mix_share=percent"])
    assert not {"VAL036", "VAL062"} & {code for code, _ in codes(capfd)}


@pytest.mark.parametrize("word", ["mfu", "mfu=", "=percent", "mfu=per mille", "loss=percent"])
def test_what_is_no_share_or_no_unit_is_refused_in_words(log, word, capfd):
    assert run(["triage", log, "--unit", word]) == 2
    stderr = capfd.readouterr().err
    assert "--unit" in stderr
    assert "Traceback" not in stderr


def test_two_units_for_one_share_are_refused(log, capfd):
    assert run(["triage", log, "--unit", "mfu=percent", "--unit", "mfu=fraction"]) == 2
    assert "twice" in capfd.readouterr().err
