"""`ckaudit data`: what it prints, where it writes, and how it ends."""

import json

import pytest

from ckaudit.cli.run import run

TEXT = "The committee agreed to publish the results of the second survey before the end of the month."


@pytest.fixture
def sample(tmp_path):
    rows = [{"text": TEXT, "source": "web", "tokens": 20}, {"text": TEXT, "source": "web\x1b[31m", "tokens": 20}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_table_says_what_was_measured_and_what_was_not(sample, capfd):
    assert run(["data", str(sample)]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"{sample}: 2 records in 1 file\n")
    assert ["near_dup_rate", "100.00", "%"] in [line.split()[:3] for line in out.splitlines()]
    assert "the largest of 1 group\n" in out
    assert "\nNot measured\n" in out
    assert "train_val_overlap (M37): there is nothing to compare with: give --validation" in out
    assert "\x1b" not in out


def test_json_is_the_contract_and_markdown_is_harmless(sample, tmp_path, capfd):
    from jsonschema import Draft202012Validator

    from ckaudit.contract.schema.published import schema

    assert run(["data", str(sample), "--validation", str(sample), "-f", "json", "-o", str(tmp_path / "out.json"), "-q"]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    Draft202012Validator(schema("ck.measures.v1")).validate(found)
    values = {each["name"]: each["value"] for each in found["measures"]}
    assert (values["near_dup_rate"], values["train_val_overlap"], values["language_share/en"]) == (100, 100, 1)
    assert run(["data", str(sample), "-f", "markdown"]) == 0
    out = capfd.readouterr().out
    assert "| <code>near&#95;dup&#95;rate</code> | 100.00 % | 34.24 to 100.00 % |" in out
    assert "\x1b" not in out


def test_values_join_a_run(sample, tmp_path, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "scalars.jsonl").write_text('{"step": 700, "train_loss_raw": 1.0}\n')
    assert run(["data", str(sample), "--into", str(folder)]) == 0
    line = json.loads((folder / "scalars-data.jsonl").read_text())
    assert (line["step"], line["near_dup_rate"], line["language_share/en"]) == (700, 100.0, 1.0)
    assert "train_val_overlap" not in line
    assert "at step 700" in capfd.readouterr().err
    assert run(["data", str(sample), "--into", str(folder), "--step", "5", "-q"]) == 0
    assert len((folder / "scalars-data.jsonl").read_text().splitlines()) == 2


def test_columns_can_be_named(tmp_path, capfd):
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": TEXT, "meta": {"from": "web"}, "length": 20}) + "\n")
    words = ["--map", "text=body", "--map", "source=meta.from", "--map", "tokens=length", "-f", "json"]
    assert run(["data", str(tmp_path), *words]) == 0
    names = {each["name"] for each in json.loads(capfd.readouterr().out)["measures"]}
    assert {"source_mix_share/web", "language_share/en"} <= names


def test_a_file_that_cannot_be_read_fails_and_the_rest_is_measured(sample, tmp_path, capfd):
    (tmp_path / "b.jsonl.gz").write_bytes(b"no gzip")
    assert run(["data", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert "sev1 SYN012" in out
    assert "near_dup_rate" in out
    assert run(["data", str(tmp_path), "--fail-on", "sev0"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing"],
        ["{empty}"],
        ["{sample}", "--split", "page"],
        ["{sample}", "--pad-id", "x"],
        ["{sample}", "--map", "txt=a"],
        ["{sample}", "--into", "missing"],
        ["{sample}", "--step", "5"],
        ["{sample}", "-f", "sarif"],
        ["{sample}", "--classifier", "nothing"],
        ["{sample}", "--tokenizer", "{sample}"],
        ["{sample}", "--validation", "missing"],
        ["{blank}"],
    ],
)
def test_what_cannot_be_done_is_an_error(arguments, sample, tmp_path, capfd):
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.jsonl").write_text("{}\n")
    places = {"empty": tmp_path / "empty", "sample": sample, "blank": tmp_path / "blank.jsonl"}
    assert run(["data", *(word.format(**places) for word in arguments)]) == 2
    assert "error: " in capfd.readouterr().err


def test_a_column_that_is_not_there_is_an_error_and_nothing_is_shown_or_kept(sample, tmp_path, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    assert run(["data", str(sample), "--map", "text=body", "--into", str(folder)]) == 2
    out, err = capfd.readouterr()
    assert not out
    assert "error: --map text=body: no record has a column 'body'\nhint: the columns are text, source, tokens\n" in err
    assert list(folder.iterdir()) == []
    (tmp_path / "valid.jsonl").write_text(json.dumps({"body": TEXT}) + "\n")
    assert run(["data", str(sample), "--validation", str(tmp_path / "valid.jsonl"), "--map", "text=body"]) == 0


def test_a_step_after_the_end_of_a_run_is_refused_before_anything_is_read(tmp_path, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "scalars.jsonl").write_text('{"step": 600, "train_loss_raw": 1.0}\n')
    assert run(["data", "missing.jsonl", "--into", str(folder), "--step", "5000"]) == 2
    assert "ends at step 600, before --step 5000\nhint: name a step that was trained: --step 600" in capfd.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["scalars.jsonl"]


def test_one_of_anything_is_not_many(tmp_path, capfd):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": TEXT, "reject": True}) + "\n" + "{\n" * 6)
    assert run(["data", str(tmp_path / "a.jsonl")]) == 0
    out = capfd.readouterr().out
    assert "for filter_reject_rate only: 1 rejected document\n" in out
    assert "1 more record like this one" in out


@pytest.mark.parametrize(
    "command",
    [
        ["data", "{sample}"],
        ["data", "{sample}", "-f", "json"],
        ["data", "--help"],
        ["explain", "near_dup_rate"],
        ["explain", "M37"],
    ],
)
def test_what_a_near_duplicate_is_stands_wherever_it_is_counted(command, sample, capfd):
    from ckaudit.data.duplicates import THRESHOLD

    assert run([word.format(sample=sample) for word in command]) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert f"{THRESHOLD:g}" in out
    assert "Jaccard" in out


def test_addresses_that_are_nobodys_are_told_of_in_the_help_and_the_explanation(capfd):
    for command in (["data", "--help"], ["explain", "pii_hit_rate"]):
        assert run(command) == 0
        assert "example.com" in capfd.readouterr().out
