"""Broken, hostile and half-written checkpoints: each is told by its kind, none is passed, none runs or fills the memory."""

import json
import os
import pickle
import random
import struct
import zipfile

import pytest

from ckaudit.errors import CkauditError
from ckaudit.reports.outcome import outcome
from ckaudit.resume.catalogue import BREAKING
from ckaudit.resume.check import resume_check
from tests.resume.made import safetensors, torch_zip


def codes(path, *severities):
    return {each.code for each in resume_check(path).report.findings if not severities or each.severity in severities}


def header(**entries):
    return json.dumps(entries).encode()


FLOATS = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


class Runs:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


class Mine:
    pass


def test_code_in_a_pickle_is_named_and_not_run(tmp_path):
    torch_zip(tmp_path / "evil.pt", pickle.dumps({"model": Runs(tmp_path / "done")}))
    report = resume_check(tmp_path).report
    found = next(each for each in report.findings if each.code == "RSM009")
    assert found.found == f"{os.system.__module__}.system"
    assert not (tmp_path / "done").exists()


def test_a_class_of_another_program_is_named(tmp_path):
    torch_zip(tmp_path / "x.pt", pickle.dumps({"model": Mine()}, 2))
    found = next(each for each in resume_check(tmp_path).report.findings if each.code == "RSM010")
    assert found.where.endswith(".Mine")


def test_a_file_of_an_old_torch_is_skipped_and_not_passed(torch, tmp_path):
    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    report = resume_check(tmp_path).report
    assert report.resume_checkpoints[0].ok is None
    assert not any(check.outcome == "passed" and check.code in BREAKING for check in report.checks)
    assert any("before torch 1.6" in note for note in report.notes)


@pytest.mark.parametrize(
    ("head", "data", "code"),
    [
        (header(a=FLOATS), b"\0" * 15, "RSM003"),
        (header(a=FLOATS), b"\0" * 17, "RSM004"),
        (header(a=FLOATS, b={**FLOATS, "data_offsets": [8, 24]}), b"\0" * 24, "RSM004"),
        (header(a={**FLOATS, "shape": [5]}), b"\0" * 16, "RSM004"),
        (header(a={**FLOATS, "shape": [2**62, 2**62]}), b"\0" * 16, "RSM004"),
        (header(a={**FLOATS, "data_offsets": [16, 0]}), b"\0" * 16, "RSM004"),
        (header(a={**FLOATS, "data_offsets": [True, 16]}), b"\0" * 16, "RSM004"),
        (header(a=5), b"", "RSM004"),
        (b"[" * 100_000, b"", "RSM004"),
        (b"{", b"", "RSM004"),
    ],
)
def test_safetensors_that_contradict_themselves(tmp_path, head, data, code):
    safetensors(tmp_path / "model.safetensors", head, data)
    assert code in codes(tmp_path, "sev0")


def test_a_header_longer_than_the_file_and_one_beyond_the_format(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 10**6) + b"{}")
    (tmp_path / "b.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    assert codes(tmp_path, "sev0") == {"RSM003", "RSM004"}


def test_an_element_type_of_tomorrow_is_skipped(tmp_path):
    safetensors(tmp_path / "model.safetensors", header(a={**FLOATS, "dtype": "F2"}), b"\0" * 16)
    report = resume_check(tmp_path).report
    assert report.resume_checkpoints[0].ok is None
    assert not codes(tmp_path, "sev0", "sev1")
    assert report.judged == "nothing"
    assert outcome(report).code == 2
    for name, dtype in (("checkpoint-1", "F32"), ("checkpoint-2", "F2")):
        (tmp_path / name).mkdir()
        safetensors(tmp_path / name / "model.safetensors", header(a={**FLOATS, "dtype": dtype}), b"\0" * 16)
    assert outcome(resume_check(tmp_path).report).code == 0


def test_a_compressed_member_is_not_unpacked(tmp_path):
    torch_zip(tmp_path / "bomb.pt", pickle.dumps({}), [("data/0", b"\0" * 10**7)], method=zipfile.ZIP_DEFLATED)
    assert "RSM019" in codes(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\0" * 4096, b"hello"])
def test_files_without_content(tmp_path, data):
    (tmp_path / "step_5.pt").write_bytes(data)
    assert codes(tmp_path, "sev0")


def test_a_flipped_bit_in_a_tensor_is_seen(torch, saved):
    path = saved / "step_200.pt"
    data = bytearray(path.read_bytes())
    weight = torch.load(path, weights_only=True)["model"]["0.weight"].numpy().tobytes()
    data[data.index(weight) + 100] ^= 1
    path.write_bytes(data)
    report = resume_check(saved).report
    assert [(each.code, each.file) for each in report.findings] == [("RSM004", "step_200.pt")]
    assert "CRC-32" in report.findings[0].message
    assert [each.ok for each in report.resume_checkpoints] == [True, False, True]


def test_a_storage_smaller_than_its_tensor(torch, tmp_path):
    torch.save({"model": {"w": torch.zeros(100)}}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        members = [(name.partition("/")[2], archive.read(name)) for name in archive.namelist()]
    short = [(name, data[:-4] if name == "data/0" else data) for name, data in members if name != "data.pkl"]
    torch_zip(tmp_path / "x.pt", dict(members)["data.pkl"], short)
    assert codes(tmp_path, "sev0") == {"RSM003"}


def test_an_index_that_names_what_is_not_there(torch, tmp_path):
    from safetensors.torch import save_file

    folder = tmp_path / "checkpoint-9"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / "model-00001-of-00002.safetensors")
    names = {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors",
        "c": "model-00001-of-00002.safetensors",
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert codes(tmp_path, "sev0") == {"RSM005", "RSM006"}
    (folder / "model.safetensors.index.json").unlink()
    assert codes(tmp_path, "sev0") == {"RSM005"}
    for name in ("../../secret", "/etc/passwd", "a\0b", "\ud800", ""):
        names["b"] = name
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        assert "RSM004" in codes(tmp_path, "sev0")
    names["b"] = "x" * 300
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "RSM005" in codes(tmp_path, "sev0")


def test_links_pipes_and_names_that_steer(torch, saved, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "far.pt"
    torch.save({"model": {"w": torch.ones(2)}}, outside)
    (saved / "step_400.pt").symlink_to(outside)
    (saved / "latest.pt").symlink_to("step_300.pt")
    (saved / "loop.pt").symlink_to("loop.pt")
    os.mkfifo(saved / "step_500.pt")
    (saved / "step_600\x1b[31m.pt").write_bytes((saved / "step_300.pt").read_bytes())
    (saved / "elsewhere").symlink_to(outside.parent)
    report = resume_check(saved).report
    assert any(note.startswith("elsewhere is a link to a folder") for note in report.notes)
    assert {each.file for each in report.findings if each.code == "RSM001"} == {"step_400.pt", "step_500.pt", "loop.pt"}
    assert "latest.pt is a link to step_300.pt" in report.notes
    assert len(report.resume_checkpoints) == 7


def test_what_interrupted_saves_leave(saved):
    (saved / "step_400.pt.tmp").write_bytes(b"")
    (saved / "tmp-checkpoint-500").mkdir()
    (saved / "notes.tmp.txt").write_text("")
    assert {each.file for each in resume_check(saved).report.findings if each.code == "RSM013"} == {
        "step_400.pt.tmp",
        "tmp-checkpoint-500",
    }


def test_what_a_resume_needs(torch, trained, tmp_path):
    model, optimizer = trained
    for name, state in {
        "step_1.pt": {"model": model.state_dict(), "step": 1},
        "step_2.pt": {"model": model.state_dict(), "optimizer": torch.optim.SGD(model.parameters()).state_dict()},
        "step_3.pt": {"optimizer": optimizer.state_dict(), "step": 3},
        "step_4.pt": {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 44},
    }.items():
        torch.save(state, tmp_path / name)
    report = resume_check(tmp_path).report
    by_code = {each.code: [each.file, *each.also] for each in report.findings if each.code != "RSM012"}
    assert by_code == {"RSM011": ["step_1.pt"], "RSM020": ["step_3.pt"], "RSM017": ["step_4.pt"]}
    assert "optimizer" in report.resume_checkpoints[1].present  # plain SGD has no moments, and its state is there


def test_sizes_and_times_that_jump(torch, tmp_path):
    for step in range(1, 6):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for part in ("model", "optimizer"):
            count = 10**6 if step != 4 else 2 * 10**6
            torch.save({"a": torch.zeros(count)}, folder / f"{part}.pt")
            late = 90 if (step, part) == (2, "optimizer") else 4 if part == "optimizer" else 0
            os.utime(folder / f"{part}.pt", (1000 * step + late,) * 2)
    found = {
        each.code: (each.file, each.value) for each in resume_check(tmp_path).report.findings if each.code in ("RSM014", "RSM015")
    }
    assert found["RSM014"][0] == "checkpoint-4"
    assert found["RSM015"] == ("checkpoint-2", 90.0)
    assert len(found) == 2


@pytest.mark.parametrize("name", ["step_100.pt", "model.safetensors"])
def test_cut_off_anywhere_it_is_never_good(torch, saved, tmp_path_factory, name):
    if name.startswith("model"):
        from safetensors.torch import save_file

        save_file({"a.weight": torch.randn(30, 3), "b": torch.ones(7)}, saved / name)
    whole = (saved / name).read_bytes()
    folder = tmp_path_factory.mktemp("cut")
    for end in sorted({*range(0, len(whole), 97), *range(len(whole) - 60, len(whole))}):
        (folder / name).write_bytes(whole[:end])
        report = resume_check(folder).report
        assert report.severity == "sev0", end
        assert report.resume_checkpoints[0].ok is False


@pytest.mark.parametrize("seed", range(4))
def test_any_flipped_bytes_give_a_report(torch, saved, tmp_path_factory, seed):
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("flipped")
    save_file({"a.weight": torch.randn(3, 3), "b": torch.ones(7)}, saved / "m.safetensors")
    chance = random.Random(seed)
    for name in ("step_100.pt", "m.safetensors"):
        whole = (saved / name).read_bytes()
        with zipfile.ZipFile(saved / "step_100.pt") as archive:
            size = archive.getinfo("step_100/data.pkl").file_size
        for _ in range(60):
            broken = bytearray(whole)
            near = chance.choice([len(whole), size + 200, 200])
            for _ in range(chance.randint(1, 6)):
                broken[chance.choice([1, -1]) * chance.randrange(1, min(near, len(whole)))] = chance.randrange(256)
            (folder / name).write_bytes(broken)
            try:
                resume_check(folder)
            except CkauditError:
                continue
