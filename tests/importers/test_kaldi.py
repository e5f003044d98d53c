"""Logs of Kaldi's nnet3, one after the other."""
# ruff: noqa: E501  lines of a foreign log

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.importers import Imported
from ckaudit.importers.formats import kaldi
from ckaudit.importers.importer import Source

Import = Callable[..., Imported]
TRAIN = """nnet3-train --momentum=0.0 "nnet3-am-copy --raw=true exp/nnet3/tdnn/{n}.mdl -|" ark:egs.1.ark exp/nnet3/tdnn/{after}.{job}.raw
# Started at Tue Mar 11 09:14:02 CET 2025
LOG (nnet3-train[5.5.103~1-34cc4e]:PrintTotalStats():nnet-training.cc:348) Overall average objective function for 'output' is {value} over {frames} frames.
LOG (nnet3-train[5.5.103~1-34cc4e]:PrintTotalStats():nnet-training.cc:355) Overall average accuracy for 'output' is 0.5 over {frames} frames.
LOG (nnet3-train[5.5.103~1-34cc4e]:PrintTotalStats():nnet-training.cc:348) Overall average objective function for 'output-xent' is -9.5 over 9 frames.
"""
VALID = """nnet3-compute-prob exp/nnet3/tdnn/{n}.mdl "ark,bg:nnet3-copy-egs ark:exp/nnet3/tdnn/egs/{kind}_diagnostic.egs ark:- |"
LOG (nnet3-compute-prob[5.5.103~1-34cc4e]:PrintTotalStats():nnet-diagnostics.cc:192) Overall log-likelihood for 'output' is {value} per frame, over 4000 frames.
"""


def train(n: int, value: object, *, job: int = 1, frames: int = 100) -> str:
    return TRAIN.format(n=n, after=n + 1, value=value, job=job, frames=frames)


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_the_loss_is_the_negative_of_the_objective_by_iterations(imported: Import) -> None:
    text = train(10, -1.5) + train(0, -4.0) + train(2, -2.0) + train(1, -3.0)
    text += VALID.format(n=1, kind="valid", value=-4.5) + VALID.format(n=1, kind="train", value=-9)
    run = imported(text, "train.log")
    assert run.source == "Kaldi nnet3 logs"
    assert curve(run, "train_loss_raw") == {1: 4.0, 2: 3.0, 3: 2.0, 11: 1.5}
    assert curve(run, "val_loss") == {1: 4.5}
    assert run.manifest.step_unit == "entry"
    assert any("negative of the objective" in note for note in run.notes)
    assert any("accuracies were left out" in note for note in run.notes)


def test_jobs_of_one_iteration_are_averaged_over_their_frames(imported: Import) -> None:
    text = "".join(train(n, -2.0, frames=300) + train(n, -4.0, job=2, frames=100) for n in range(3))
    assert curve(imported(text, "train.log"), "train_loss_raw") == dict.fromkeys((1, 2, 3), 2.5)


def test_a_chain_model_is_read_by_its_first_number_and_lines_alone_are_numbered(imported: Import) -> None:
    lines = (
        f"LOG (nnet3-chain-train[5.2.107~2-e892]:PrintTotalStats():nnet-training.cc:295) Overall average objective function for "
        f"'output' is -0.{9 - n} + -0.00764069 = -0.{9 - n}076 over 512000 frames.\n"
        for n in range(4)
    )
    run = imported("".join(lines), "chain.log")
    assert curve(run, "train_loss_raw") == {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6}
    assert any("numbered as they stand" in note for note in run.notes)


def test_an_objective_that_is_no_number_stays_one(imported: Import) -> None:
    run = imported("".join(train(n, value) for n, value in enumerate((-3.0, -2.0, "nan"))), "train.log")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.0, 3: pytest.approx(float("nan"), nan_ok=True)}


def test_an_objective_that_falls_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    values = [-4 * 0.96**n - 0.01 * (n % 2) for n in range(60)] + [-3 - 0.1 * n for n in range(30)]
    path.write_text("".join(train(n, value) for n, value in enumerate(values)))
    assert triage(path).severity == "sev1"


def test_a_folder_of_logs_is_one_run(tmp_path: Path) -> None:
    objective = "LOG (nnet3-{program}[5.5]:PrintTotalStats():nnet.cc:1) Overall {what} for 'output' is {value} {over}.\n"
    folder = tmp_path / "exp" / "log"
    folder.mkdir(parents=True)
    for n in range(4):
        for job, frames in ((1, 300), (2, 100)):
            line = objective.format(
                program="train", what="average objective function", value=n - 9 - job, over=f"over {frames} frames"
            )
            (folder / f"train.{n}.{job}.log").write_text("# nnet3-train --use-gpu=yes\n" + line)
        line = objective.format(program="compute-prob", what="log-likelihood", value=n - 20, over="per frame, over 9 frames")
        (folder / f"compute_prob_valid.{n}.log").write_text("# nnet3-compute-prob\n" + line)
        (folder / f"compute_prob_train.{n}.log").write_text(line)
    for source in (folder, folder.parent):
        assert kaldi.detects(Source(source))
        (run,) = kaldi.read(Source(source), {})
        assert curve(run, "train_loss_raw") == {n + 1: 10.25 - n for n in range(4)}
        assert curve(run, "val_loss") == {n: 20.0 - n for n in range(4)}
