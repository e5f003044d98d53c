"""Recordings in a cache: what goes in comes out, what is foreign does not get in, what is old is known."""

import os
import random
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import zstandard
from msgspec.structs import replace

from ckaudit.contract.io.codec import pack
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.lab import archive, cache
from ckaudit.lab.cache import (
    cached_training,
    code,
    default_folder,
    differences,
    helpers,
    keep,
    must_be_trained_again,
    provenance_of,
)
from ckaudit.lab.record import FinishedTraining, clear, gather
from ckaudit.lab.specs import controls, faults
from ckaudit.lab.training_spec import HEALTHY, names, recipe, recipes
from tests.lab import workers

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def run_folder(folder: Path) -> Path:
    """Write files such as a run has: a log, checkpoints that pack to the same bytes again, and others."""
    folder.mkdir()
    plain = random.Random(1).randbytes(30_000)
    packed = pack(plain, ".json.zst")
    (folder / "scalars.jsonl").write_bytes(b'{"step":1}\n' * 200)
    (folder / "run.json").write_bytes(b"{}")
    (folder / "analysis_checkpoint_step_00000000.json.zst").write_bytes(packed)
    (folder / "analysis_checkpoint_step_00000010.json.zst").write_bytes(packed[:20_000])
    (folder / "analysis_checkpoint_step_00000020.json.zst").write_bytes(
        zstandard.ZstdCompressor(level=12).compress(b"x" * 30_000)
    )
    (folder / "analysis_checkpoint_step_00000030.json").write_bytes(plain)
    return folder


def test_what_goes_in_comes_out_to_the_byte_but_for_what_no_audit_reads(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "reference.npz").write_bytes(b"weights")
    size = keep(tmp_path / "cache", recipe("healthy", 0), folder)
    entry = cached_training(tmp_path / "cache", recipe("healthy", 0))
    assert entry.path.stat().st_size == size
    assert (entry.state, entry.usable) == ("fresh", True)
    (tmp_path / "out").mkdir()
    archive.unpack(entry.path, tmp_path / "out")
    (folder / "reference.npz").unlink()
    assert contents(tmp_path / "out") == contents(folder)


def test_equal_parts_of_checkpoints_are_stored_once(tmp_path: Path) -> None:
    size = keep(tmp_path, recipe("healthy", 0), run_folder(tmp_path / "run"))
    assert 30_000 < size < 31_500  # of 80,000 random bytes 30,000 are different


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for about, data in members:
            about.size = len(data)
            tar.addfile(about, BytesIO(data))
    return zstandard.compress(out.getvalue())


def member(name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.type, about.linkname = kind, link
    return about


MADE = (member("made.json"), b"{}")
FOREIGN = {
    "a parent": (member("files/../escaped"), b"x"),
    "an absolute path": (member("/tmp/escaped"), b"x"),
    "a folder": (member("files/deep/escaped"), b"x"),
    "a hidden file": (member("files/.bashrc"), b"x"),
    "no folder of ours": (member("escaped"), b"x"),
    "an empty name": (member("files/"), b"x"),
    "a symbolic link": (member("files/run.json", kind=tarfile.SYMTYPE, link="/etc/passwd"), b""),
    "a hard link": (member("files/run.json", kind=tarfile.LNKTYPE, link="made.json"), b""),
    "a device": (member("files/run.json", kind=tarfile.CHRTYPE), b""),
    "a directory": (member("files/run.json", kind=tarfile.DIRTYPE), b""),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_nothing_leaves_the_folder(what: str, tmp_path: Path) -> None:
    (tmp_path / "x.tar.zst").write_bytes(tar_of(MADE, FOREIGN[what]))
    (tmp_path / "out").mkdir()
    with pytest.raises(UnreadableError, match="no recording of the lab"):
        archive.unpack(tmp_path / "x.tar.zst", tmp_path / "out")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "x.tar.zst"]
    assert not list((tmp_path / "out").iterdir())


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x.tar.zst").write_bytes(tar_of(MADE, (member("files/run.json"), b"1"), (member("repacked/run.json"), b"2")))
    (tmp_path / "out").mkdir()
    with pytest.raises(UnreadableError):
        archive.unpack(tmp_path / "x.tar.zst", tmp_path / "out")
    assert contents(tmp_path / "out") == {"run.json": b"1"}


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)
    (tmp_path / "x.tar.zst").write_bytes(tar_of(MADE, (member("files/run.json"), b"0" * 10_000_000)))
    (tmp_path / "out").mkdir()
    with pytest.raises(UnreadableError, match="unpacks to more"):
        archive.unpack(tmp_path / "x.tar.zst", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"not zstd" + data])
def test_a_damaged_recording_is_trained_again(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    keep(tmp_path, recipe("healthy", 0), run_folder(tmp_path / "run"))
    path = cached_training(tmp_path, recipe("healthy", 0)).path
    path.write_bytes(damage(path.read_bytes()))
    (tmp_path / "out").mkdir()
    with pytest.raises(UnreadableError):
        archive.unpack(path, tmp_path / "out")


def test_only_another_change_or_plan_makes_a_recording_useless() -> None:
    then = provenance_of(recipe("lr_too_high", 0))
    assert must_be_trained_again(then, replace(then, plan="other"))
    assert must_be_trained_again(then, replace(then, change="other"))
    assert not must_be_trained_again(then, replace(then, loop="other", recorder="9.9"))
    assert differences(then, replace(then, loop="x", recorder="9.9")) == ["the training loop", "the recorder's version"]


def test_an_entry_says_what_is_not_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = recipe("lr_too_high", 0)
    keep(tmp_path, what, run_folder(tmp_path / "run"))
    now = provenance_of(what)
    monkeypatch.setattr(cache, "provenance_of", lambda _: replace(now, plan="other"))
    assert (cached_training(tmp_path, what).state, cached_training(tmp_path, what).why) == ("stale", "its plan")
    monkeypatch.setattr(cache, "provenance_of", lambda _: replace(now, recorder="9.9"))
    assert (cached_training(tmp_path, what).state, cached_training(tmp_path, what).usable) == ("older", True)
    assert cached_training(tmp_path, recipe("lr_too_high", 1)).state == "missing"


def test_words_and_labels_do_not_make_another_change(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.py" for name in "abc")
    first.write_text('"""One."""\n@fault(truth="x")\nclass A:\n    """Words."""\n    def plan(self):\n        return 1\n')
    second.write_text(
        '@fault(truth="y", place=("z",))\nclass A:\n    # why\n    def plan(self):\n        """More."""\n        return 1\n'
    )
    third.write_text("class A:\n    def plan(self):\n        return 2\n")
    assert code(first) == code(second) != code(third)


def test_a_change_is_its_class_with_what_that_uses_of_its_file(tmp_path: Path) -> None:
    alone, among = tmp_path / "alone.py", tmp_path / "among.py"
    alone.write_text(
        "from typing import TYPE_CHECKING\nfrom x import b\nif TYPE_CHECKING:\n    from torch import nn\nK = 2\n"
        'def helper():\n    return K\nclass A:\n    def plan(self, model: "nn.Module"):\n        return b(helper())\n'
    )
    among.write_text(
        '"""Many."""\nfrom typing import TYPE_CHECKING, Any\nfrom x import a, b\nif TYPE_CHECKING:\n    from torch import T, nn\n'
        'K = 2\nJ = 3\ndef other(t: "T") -> Any:\n    return a(J)\ndef helper():\n    return K\nclass B:\n    plan = other\n'
        'class A:\n    def plan(self, model: "nn.Module"):\n        return b(helper())\n'
    )
    assert code(among, "A") == code(alone)
    assert code(among, "B") != code(alone)


def test_helpers_of_a_change_belong_to_it_and_the_loop_does_not() -> None:
    lab = Path(cache.__file__).parent
    files = [lab / "controls" / "datasets.py", lab / "faults" / "learning_rate.py"]
    codes = [code(files[0], "HeavyTailed"), code(files[1], "LrTooHigh")]
    assert [(file.name, name) for file, name in helpers(codes, files)] == [("altered_batches.py", "backwards")]


def test_a_training_has_the_name_of_its_class() -> None:
    for name, entry in {**faults(), **controls()}.items():
        assert entry.change.__name__ == "".join(word.capitalize() for word in name.split("_"))


def test_seeds_and_amounts_make_other_recordings() -> None:
    prints = {(each.name, each.seed): provenance_of(each) for each in (recipe("lr_too_high", seed) for seed in (0, 1, 10))}
    assert len({each.plan for each in prints.values()}) == 3
    assert prints["lr_too_high", 0].change == prints["lr_too_high", 1].change != prints["lr_too_high", 10].change


def test_every_training_has_one_recipe_for_each_seed() -> None:
    assert len(names()) == len(set(names()))
    assert len(recipes("dev")) == 3 * len(names())
    assert len(recipes("test")) == 2 * len(names())
    assert [each.family for each in recipes("test")[: len(HEALTHY)]] == list(HEALTHY.values())


def test_the_cache_is_where_the_desktop_standard_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert default_folder() == Path("/var/cache/ckaudit/lab")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_folder() == Path("/home/someone/.cache/ckaudit/lab")


def test_a_training_that_fails_or_dies_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckaudit.lab.record._work", workers.work)
    told: list[FinishedTraining] = []
    wanted = [recipe(name, 0) for name in ("healthy", "healthy_moe", "healthy_mlp", "healthy_cnn")]
    done = gather(wanted, tmp_path, jobs=2, on_done=told.append)
    assert done == told
    assert {each.name: (each.size, each.error) for each in done} == {
        "healthy": (7, ""),
        "healthy_moe": (0, "ValueError: it does not train"),
        "healthy_mlp": (0, f"its process ended with {workers.CODE}"),
        "healthy_cnn": (7, ""),
    }
    assert all(each.seconds > 0 for each in done)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    clear(tmp_path / "new", force=False)
    run = run_folder(tmp_path / "run")
    with pytest.raises(UsageError, match="holds a run already"):
        clear(run, force=False)
    clear(run, force=True)
    assert not list(run.iterdir())
    (run / "thesis.txt").touch()
    (run / "run.json").touch()
    with pytest.raises(UsageError, match="thesis"):
        clear(run, force=True)
    assert len(list(run.iterdir())) == 2
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a folder"):
        clear(tmp_path / "pipe", force=True)
