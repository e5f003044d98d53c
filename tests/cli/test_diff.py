"""`ckaudit diff` on recorded pairs and on what is broken: the exit code, and the first line that says why."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ckaudit.cli.comparison_options import exit_code
from ckaudit.cli.run import run
from ckaudit.contract.schema.diff import Comparison
from tests.diff.conftest import judged_once
from tests.reports.diff.sample import SAMPLES

__all__ = ["judged_once"]

ROOT = Path(__file__).parents[2]
PAIRS = ROOT / "fixtures" / "pairs"
BASE = str(PAIRS / "base")


@pytest.fixture
def told(capfd):
    """Run a command; give the code, the document or the text, and what was said beside it."""

    def ask(*arguments, kind="json"):
        code = run([*map(str, arguments), "-f", kind])
        out, err = capfd.readouterr()
        return code, msgspec.json.decode(out, type=Comparison) if kind == "json" and out else out, err

    return ask


@pytest.mark.parametrize(
    ("name", "words", "codes"),
    [
        ("identical", {"same", "better", "worse"}, {0, 1}),
        ("replica", {"within_noise", "better"}, {0}),
        ("lr_doubled", {"worse", "different"}, {1}),
        ("frozen", {"worse", "different"}, {1}),
        ("optimizer_lost", {"worse", "different"}, {1}),
        ("tokenizer", {"incomparable"}, {2}),
    ],
)
def test_recorded_pairs_get_the_word_and_the_code_that_their_one_change_asks_for(told, name, words, codes):
    code, found, err = told("diff", BASE, PAIRS / name)
    assert (found.word in words, code in codes, err) == (True, True, ""), (found.word, found.verdict)


def test_the_step_of_a_change_is_the_step_of_the_parting(told):
    assert told("diff", BASE, PAIRS / "lr_doubled")[1].pairs[0].parting.step == 500
    assert told("diff", BASE, PAIRS / "frozen")[1].pairs[0].parting.step == 300
    assert told("diff", BASE, PAIRS / "identical")[1].pairs[0].parting is None


def test_the_words_decide_the_code():
    found = SAMPLES["several"]()
    assert exit_code(found, "different") == 1
    only = {pair.word: msgspec.structs.replace(found, pairs=[pair]) for pair in found.pairs}
    assert [exit_code(only[word], "different") for word in ("within_noise", "better", "worse", "incomparable")] == [0, 0, 1, 2]
    assert [exit_code(only[word], "within_noise") for word in ("within_noise", "better", "worse")] == [1, 1, 1]
    assert exit_code(SAMPLES["alike"](), "within_noise") == 0


def test_two_checkpoints(told):
    assert told("diff", f"{BASE}@500", f"{BASE}@500")[0] == 0
    code, found, _ = told("diff", f"{BASE}@500", f"{BASE}@600")
    assert (code, found.word, found.subjects) == (1, "different", [f"{BASE}@500", f"{BASE}@600"])
    code, found, _ = told("diff", f"{BASE}@500", f"{PAIRS / 'identical'}@500", f"{PAIRS / 'frozen'}@500")
    assert (code, [pair.word for pair in found.pairs]) == (1, ["same", "different"])


def test_the_same_run_twice_is_said(told):
    _, found, _ = told("diff", BASE, BASE)
    assert found.word == "same"
    assert "was named twice" in "".join(found.notes)
    assert "was named twice" in told("diff", f"{BASE}@500", f"{BASE}@500", kind="terminal")[1]


def test_more_than_two_runs_share_a_table(told):
    _, text, _ = told("diff", BASE, PAIRS / "replica", PAIRS / "frozen", PAIRS / "tokenizer", kind="terminal")
    assert "[4] " + str(PAIRS / "tokenizer") in text
    row = next(line for line in text.splitlines() if line.strip().startswith("all in all"))
    assert row.count("?") == 1


def copied(tmp_path, name="copy"):
    return Path(shutil.copytree(BASE, tmp_path / name))


@pytest.mark.parametrize("kind", ["terminal", "json", "markdown", "sarif", "junit", "github"])
def test_every_format_of_a_real_pair(told, kind, tmp_path):
    file = tmp_path / "out"
    assert run(["diff", BASE, str(PAIRS / "lr_doubled"), "-f", kind, "-o", str(file)]) == 1
    text = file.read_text(encoding="utf-8")
    code, again, _ = told("diff", BASE, PAIRS / "lr_doubled", kind=kind)
    assert (code, text[-1]) == (1, "\n")
    assert again == (msgspec.json.decode(text, type=Comparison) if kind == "json" else text)


def test_an_empty_folder_is_no_run(told, tmp_path):
    code, out, err = told("diff", BASE, tmp_path)
    assert (code, out) == (2, "")
    assert "holds no checkpoint" in err.splitlines()[0]


def test_a_half_written_file_among_others_is_read_around(told, tmp_path):
    run_folder = copied(tmp_path)
    file = run_folder / "analysis_checkpoint_step_00000600.json.zst"
    file.write_bytes(file.read_bytes()[:200])
    code, found, err = told("diff", BASE, run_folder)
    assert (code in (0, 1, 2), err) == (True, "")
    assert found.pairs[0].word != "same" or found.pairs[0].gained


def test_a_half_written_checkpoint_alone_is_an_error(told, tmp_path):
    file = tmp_path / "analysis_checkpoint_step_00000600.json.zst"
    file.write_bytes((PAIRS / "base" / file.name).read_bytes()[:200])
    code, out, err = told("diff", f"{BASE}@600", file)
    assert (code, out) == (2, "")
    assert file.name in err.splitlines()[0]


def lines_of(path, change=None):
    """Write a run of scalars alone."""
    path.mkdir()
    rows = [
        {"step": step, "train_loss_raw": 3 / (1 + step / 50), "grad_global_norm": 1.0, "learning_rate": 0.001}
        for step in range(1, 201)
    ]
    (path / "scalars.jsonl").write_text("".join(json.dumps(change(row) if change else row) + "\n" for row in rows))
    return path


def test_a_loss_that_is_no_number_is_worse_and_never_the_same(told, tmp_path):
    broken = lines_of(tmp_path / "nan", lambda row: row | ({"train_loss_raw": "NaN"} if row["step"] > 150 else {}))
    code, found, _ = told("diff", lines_of(tmp_path / "good"), broken)
    assert (code, found.word) == (1, "worse")
    assert "no number" in told("diff", tmp_path / "good", broken, kind="terminal")[1].splitlines()[0]


def test_a_run_without_loss_is_not_recorded(told, tmp_path):
    mute = lines_of(tmp_path / "mute", lambda row: {"step": row["step"], "learning_rate": 0.001})
    code, found, _ = told("diff", lines_of(tmp_path / "good"), mute)
    assert code == 2
    assert found.word in ("not_recorded", "incomparable")
    assert {each.word for each in found.pairs[0].answers if "loss" in each.question} <= {"not_recorded", "incomparable"}


def test_a_log_of_another_program_is_a_run(told, tmp_path):
    for name, factor in (("a", 1.0), ("b", 1.0)):
        text = "it,nll\n" + "".join(f"{step},{factor * 3 / (1 + step / 50)}\n" for step in range(1, 101))
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    code, found, _ = told("diff", tmp_path / "a.csv.gz", tmp_path / "b.csv.gz", "--map", "loss=nll", "--map", "step=it")
    assert (code, found.word) == (0, "same")


def test_names_that_steer_a_terminal_are_shown(told, tmp_path):
    run_folder = copied(tmp_path, "evil\x1b[31m<b>run")
    _, text, _ = told("diff", BASE, run_folder, kind="terminal")
    assert "evil\\x1b[31m" in text
    assert "\x1b" not in text
    assert "<b>" not in told("diff", BASE, run_folder, kind="markdown")[1].replace("<b>", "", 0).split("evil")[1][:20]


LOADED = "import sys; from ckaudit.cli.run import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


def test_two_checkpoints_load_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "diff", f"{BASE}@500", f"{BASE}@600"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.startswith("DIFFERENT  ")
    loaded = {name for name in done.stderr.split() if name.partition(".")[0] != "encodings"}
    assert not {name for name in loaded if name.split(".")[0] in {"numpy", "rich", "pyarrow", "jsonschema", "torch", "pydantic"}}
    assert not {
        name for name in loaded if name.startswith(("ckaudit.rules", "ckaudit.causes", "ckaudit.metrics", "ckaudit.audit"))
    }
    assert not {"ckaudit.cli.metrics", "ckaudit.cli.validate", "ckaudit.cli.lab.app", "ckaudit.cli.compare_gate"} & loaded


def test_a_misspelt_command_is_told_from_all_commands(capfd):
    assert run(["dif", BASE, BASE]) == 2
    assert "diff" in capfd.readouterr().err


def test_no_level_of_a_loss_that_ended_as_nan_is_called_the_same(told, tmp_path):
    broken = lines_of(tmp_path / "nan", lambda row: row | ({"train_loss_raw": "NaN"} if row["step"] > 150 else {}))
    good = lines_of(tmp_path / "good")
    answers = {each.question: each for each in told("diff", good, broken)[1].pairs[0].answers}
    assert {(answers[name].word, answers[name].right) for name in ("final_loss", "smoothed_loss")} == {("worse", "NaN")}
    answers = {each.question: each for each in told("diff", broken, good)[1].pairs[0].answers}
    assert {(answers[name].word, answers[name].left) for name in ("final_loss", "smoothed_loss")} == {("better", "NaN")}
