"""Words and fields that the contract does not know cost no time, lose no number, and are told once."""

import json
from pathlib import Path

import msgspec
import pytest

from ckaudit.audit import triage
from ckaudit.contract import explain
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.unknown_fields import unknown_words, with_open_words
from ckaudit.run.read import read_run
from ckaudit.validate import validate

HEALTHY = Path(__file__).parents[2] / "fixtures" / "runs" / "healthy"
FILES = sorted(HEALTHY.glob("analysis_checkpoint_*"))


def _trigger(document):
    document["triggers"] = ["solar_flare"]


def _source(document):
    document["gradients_source"] = "somewhere"


def _kind(document):
    for layer in document.get("attention", {}).values():
        layer["kind_per_head"] = ["whatever"] * len(layer["entropy_per_head"])


def _placement(document):
    for tensor in document.get("gradients", {}).values():
        tensor["placement"] = "here and there"


def _type(document):
    for tensor in document["weights"].values():
        tensor["dtype"] = "int3"


def _field(document):
    document["tokens_of_the_day"] = 5


def _whole_step(document):
    document["step"] = float(document["step"])


def run_with(folder, change, table=None):
    """The healthy run as plain JSON, each checkpoint changed in the same way."""
    folder.mkdir()
    manifest = json.loads((HEALTHY / "run.json").read_text())
    for facts in manifest["tensors"].values() if table else ():
        facts.update(table)
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "scalars.jsonl").write_bytes((HEALTHY / "scalars.jsonl").read_bytes())
    for file in FILES:
        document = json.loads(read_bytes(file, file.name))
        change(document)
        (folder / file.name.removesuffix(".zst")).write_text(json.dumps(document))
    return folder


@pytest.fixture
def explained(monkeypatch):
    """The files that take the slow path, in which every violation of a document is looked for."""
    names = []
    whole = explain.explain

    def counted(data, file, *rest, **more):
        names.append(file)
        return whole(data, file, *rest, **more)

    monkeypatch.setattr("ckaudit.run.read.explain", counted)
    monkeypatch.setattr(explain, "explain", counted)
    return names


@pytest.mark.parametrize("change", [_trigger, _source, _kind, _placement, _type, _field, _whole_step])
def test_a_word_that_nobody_knows_takes_no_slow_path_and_makes_no_alarm(tmp_path, explained, change):
    report = triage(run_with(tmp_path / "run", change))
    assert explained == []
    assert [each for each in report.findings if each.severity != "note"] == []
    assert report.files == len(FILES) + 2


@pytest.mark.parametrize(("change", "word"), [(_trigger, "solar_flare"), (_source, "somewhere"), (_kind, "whatever")])
def test_it_is_told_once(tmp_path, change, word):
    report = triage(run_with(tmp_path / "run", change))
    assert sum(word in text for text in (*report.notes, *(each.message for each in report.findings))) == 1


def test_no_number_is_lost_by_it(tmp_path):
    plain, odd = read_run(HEALTHY), read_run(run_with(tmp_path / "run", _trigger))
    assert odd.checkpoint_steps.tolist() == plain.checkpoint_steps.tolist()
    assert (odd.series("gradients", "norm").values == plain.series("gradients", "norm").values).all()
    assert "in 34 checkpoints since step 0" in "".join(odd.notes)


def test_a_kind_of_tensor_that_nobody_knows_counts_as_not_said(tmp_path, explained):
    run = read_run(run_with(tmp_path / "run", lambda _: None, table={"kind": "whatever"}))
    assert run.manifest is not None
    assert run.manifest.vocabulary == 28
    (note,) = [note for note in run.notes if "whatever" in note]
    assert note.startswith('/tensors/tokens.weight/kind is "whatever", not "attention" or "conv" or "embedding" or "head"')
    assert note.endswith("(and 27 more): it counts as not said")
    assert explained == []


def test_validate_names_the_word_with_its_line_and_counts_the_files(tmp_path, explained):
    (found,) = validate([run_with(tmp_path / "run", _trigger)]).findings
    assert (found.code, found.pointer, found.line, found.found) == ("SCH006", "/triggers/0", 1, '"solar_flare"')
    assert (found.file, found.first_step, found.last_step) == (FILES[0].name.removesuffix(".zst"), 0, 2000)
    assert found.message.endswith("(the same in 33 more files from step 0 to 2000)")
    assert explained == []


def test_a_writer_that_is_wrong_in_every_file_is_explained_a_few_times_and_found_once(tmp_path, explained):
    def negative(document):
        for tensor in document["weights"].values():
            tensor["std"] = -1.0

    report = triage(run_with(tmp_path / "run", negative))
    found = [each for each in report.findings if each.code == "SCH007"]
    assert len(found) == 1
    assert "the same in 33 more files from step 0 to 2000" in found[0].message
    assert (found[0].first_step, found[0].last_step) == (0, 2000)
    assert len(explained) <= 6


def test_versions_encodings_and_numbers_stay_closed():
    kind = with_open_words(Checkpoint)
    text = (HEALTHY.parents[1] / "checkpoints" / "valid" / "every_field.json").read_bytes()
    assert isinstance(msgspec.json.decode(text, type=kind), Checkpoint)
    assert [*unknown_words(msgspec.json.decode(text, type=kind))] == []
    for path, value in (("schema_version", "ck.analysis.v2"), ("loss", "high")):
        document = json.loads(text) | {path: value}
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(json.dumps(document).encode(), type=kind)
