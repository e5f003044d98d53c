"""`ckaudit report`: what it writes, what it replaces, and its exit code."""

import base64
import json
import re
import sys
from functools import partial
from pathlib import Path

import pytest

from ckaudit.audit.load_run import open_run
from ckaudit.cli.run import run
from ckaudit.diff.combine import combine_pairs
from ckaudit.diff.compare import compare
from ckaudit.errors import CkauditError
from ckaudit.reports.html import SIGNATURE, page_within_limit
from ckaudit.reports.html.page import library

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
LARGEST, LARGEST_DATA = 4_500_000, 3_000_000


def test_the_report_of_two_thousand_steps_is_small(tmp_path, capsys):
    file = tmp_path / "healthy.html"
    assert run(["report", str(RUNS / "healthy"), "-o", str(file)]) == 0
    whole = file.read_text()
    data = re.findall(r'<script type="application/json" id="d-[a-z_]+">(.*?)</script>', whole)
    assert len(whole.encode()) <= LARGEST
    assert 500_000 < sum(len(each.encode()) for each in data) <= LARGEST_DATA
    assert capsys.readouterr().err.startswith(f"wrote {file}: Nothing wrong up to step 2000")


def test_what_is_left_out_of_a_file_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ckaudit.reports.html.page_within_limit", partial(page_within_limit, data=300_000))
    file = tmp_path / "healthy.html"
    assert run(["report", str(RUNS / "healthy"), "-o", str(file)]) == 0
    note = "to keep the file small, curves and maps have a quarter of their points and steps"
    assert f"note: {note}\n" in capsys.readouterr().err
    assert note in file.read_text()


def hostile(folder: Path, *, tensors: int = 250, good: int = 30, broken: int = 600) -> None:
    """Write a run of many tensors whose names are long and full of what a page must escape, and of many broken files."""
    names = [f"blocks.{place}.{'<&' * 300}.{'weight' * 20}" for place in range(tensors)]
    grid = {
        "encoding": "q8",
        "shape": [32, 32],
        "min": -1.0,
        "max": 1.0,
        "data": base64.b64encode(bytes(range(256)) * 4).decode(),
    }
    histogram = {"bins": {"range": [-1.0, 1.0], "count": 64}, "counts": list(range(64))}
    for step in range(1, good + 1):
        size = {name: 1.0 + (place * step) % 17 for place, name in enumerate(names)}
        shared = {"histogram": histogram, "sampled_grid_32x32": grid}
        document = {
            "schema_version": "ck.analysis.v1",
            "step": step,
            "loss": 3.0,
            "weights": {name: {"frobenius_norm": value} | shared for name, value in size.items()},
            "gradients": {name: {"norm": 0.0 if value > 16 else value, "histogram": histogram} for name, value in size.items()},
            "weight_deltas": {name: {"relative": value, "moved": value} for name, value in size.items()},
        }
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    for step in range(good + 1, good + 1 + broken):
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text('{"schema_version": ')


def test_a_hostile_run_makes_a_small_file_that_says_what_it_lacks(tmp_path, capsys):
    folder, file = tmp_path / "run", tmp_path / "run.html"
    folder.mkdir()
    hostile(folder)
    assert run(["report", str(folder), "-o", str(file)]) == 1
    whole = file.read_text()
    assert len(whole.encode()) <= LARGEST
    assert sum(len(each.encode()) for each in re.findall(r'id="d-[a-z_]+">(.*?)</script>', whole)) <= LARGEST_DATA
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: to keep the file small")]
    assert notes
    assert all(line.removeprefix("note: ") in whole for line in notes)
    assert whole.count("<figure") >= 5


def test_without_a_name_it_is_called_like_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(["report", str(RUNS / "nan_batch")])
    assert [path.name for path in tmp_path.iterdir()] == ["nan_batch.html"]


def test_findings_make_the_exit_code(tmp_path):
    ill = ["report", str(RUNS / "no_warmup_spike"), "-o", str(tmp_path / "a.html")]
    assert (run(ill), run([*ill, "--fail-on", "sev2"])) == (0, 1)


def test_step_judges_what_was_known_then(tmp_path):
    file = tmp_path / "a.html"
    assert run(["report", str(RUNS / "nan_batch"), "--step", "100", "-o", str(file)]) == 0
    assert "at step 100, by ckaudit" in file.read_text()


def test_another_run_gets_a_tab(tmp_path):
    file = tmp_path / "a.html"
    run(["report", str(RUNS / "float16_overflow"), str(RUNS / "healthy"), "-o", str(file)])
    assert 'href="#t-other_run"' in file.read_text()


def test_each_of_two_runs_is_read_once_and_compared_as_by_diff(tmp_path, monkeypatch):
    read = []

    def once(path, **options):
        read.append(path.name)
        return open_run(path, **options)

    seen = []
    monkeypatch.setattr("ckaudit.audit.engine.open_run", once)
    monkeypatch.setattr(
        "ckaudit.diff.compare.combine_pairs", lambda *given, **how: seen.append(combine_pairs(*given, **how)) or seen[-1]
    )
    run(["report", str(RUNS / "nan_batch"), str(RUNS / "healthy"), "--step", "160", "-o", str(tmp_path / "a.html")])
    assert sorted(read) == ["healthy", "nan_batch"]
    compare([RUNS / "nan_batch", RUNS / "healthy"], step=160)
    assert seen[0] == seen[1]


def test_a_report_is_replaced_and_no_other_file(tmp_path, capsys):
    file = tmp_path / "mine.html"
    file.write_text("<!doctype html>\n<html>my own page")
    assert run(["report", str(RUNS / "nan_batch"), "-o", str(file)]) == 2
    assert "is there already and is no ckaudit report" in capsys.readouterr().err
    assert file.read_text().endswith("my own page")
    file.write_text(SIGNATURE + "\nan older one")
    assert run(["report", str(RUNS / "nan_batch"), "-o", str(file)]) == 1
    assert len(file.read_text()) > 1_000_000


def test_without_the_library_nothing_is_read(tmp_path, monkeypatch, capsys):
    def missing():
        raise CkauditError("plotly is not installed", hint="pip install 'ckaudit[report]'")

    monkeypatch.setattr("ckaudit.reports.html.page.library", missing)
    assert run(["report", str(tmp_path / "no-such-run"), "-o", str(tmp_path / "a.html")]) == 2
    assert "pip install 'ckaudit[report]'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--fail-on", "sev9"], ["--step", "x"], ["--map", "loss"]])
def test_wrong_words_are_refused(tmp_path, arguments):
    assert run(["report", str(RUNS / "nan_batch"), "-o", str(tmp_path / "a.html"), *arguments]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_", ["svg", "md"])
def test_the_first_page_alone_needs_no_extra(format_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ckaudit.reports.html.page.find_spec", lambda name: None)
    library.cache_clear()
    assert run(["report", str(RUNS / "lr_too_high"), "--format", format_]) == 1
    (file,) = tmp_path.iterdir()
    assert file.name == f"lr_too_high.{format_}"
    whole = file.read_text()
    assert "The learning rate is too high for the curvature of the loss" in whole
    assert run(["report", str(RUNS / "lr_too_high"), "--format", format_]) == 1  # one of ours is replaced
    assert file.read_text() == whole
    file.write_text("my own")
    assert run(["report", str(RUNS / "lr_too_high"), "--format", format_]) == 2
    assert file.read_text() == "my own"


def test_a_png_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert run(["report", str(RUNS / "healthy"), "--format", "png", "-o", str(tmp_path / "a.png")]) == 2
    err = capsys.readouterr().err
    assert "a PNG is drawn by resvg, which is not installed" in err
    assert "--format svg needs nothing" in err
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path, capsys):
    assert run(["report", str(tmp_path / "no-such-run"), "--format", "pdf"]) == 2
    assert "html, svg, md, png" in capsys.readouterr().err


def test_the_name_of_the_file_says_which_format_it_is(tmp_path):
    for name, begins in (
        ("a.svg", "<!-- ckaudit report -->\n<svg "),
        ("a.md", "<!-- ckaudit report -->\n\n###"),
        ("a.txt", SIGNATURE),
    ):
        run(["report", str(RUNS / "healthy"), "-o", str(tmp_path / name)])
        assert (tmp_path / name).read_text().startswith(begins)


def test_of_two_runs_the_second_is_the_one_that_is_judged(tmp_path, capfd):
    good, ill = RUNS / "healthy", RUNS / "zeroed_projection"
    assert run(["report", str(ill), str(good), "-o", str(tmp_path / "a.md"), "--no-config"]) == 0
    assert "Nothing wrong" in capfd.readouterr().err
    assert run(["report", str(good), str(ill), "-o", str(tmp_path / "b.md"), "--no-config", "--fail-on", "sev2"]) == 1
    assert "A path through the model is cut off" in capfd.readouterr().err
