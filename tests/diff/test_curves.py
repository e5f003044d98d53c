"""The losses of two runs, thinned for a picture: medians of stretches, and nothing that is no number is hidden."""

import json
import statistics
from pathlib import Path

from ckaudit.diff.compare import compare

PAIRS = Path(__file__).parents[2] / "fixtures" / "pairs"


def run(path, losses):
    path.mkdir()
    rows = [json.dumps({"step": step, "train_loss_raw": loss}) for step, loss in losses.items()]
    (path / "scalars.jsonl").write_text("\n".join(rows) + "\n")
    return path


def test_each_stretch_has_the_median_of_its_values(tmp_path):
    left = {step: 3.0 + ((step * 7) % 11) / 10 for step in range(1, 361)}
    right = {step: loss + (0.5 if step > 300 else 0.0) for step, loss in left.items()}
    (curve,) = compare([run(tmp_path / "a", left), run(tmp_path / "b", right)]).pairs[0].curves
    assert (curve.name, len(curve.steps), curve.steps[-1]) == ("train_loss_raw", 120, 360)
    for place, end in enumerate(curve.steps):
        inside = [step for step in left if end - 3 < step <= end]
        assert curve.left[place] == statistics.median(left[step] for step in inside)
        assert curve.right[place] == statistics.median(right[step] for step in inside)


def test_one_value_that_is_no_number_makes_its_stretch_none(tmp_path):
    left = dict.fromkeys(range(1, 241), 3.0)
    (curve,) = compare([run(tmp_path / "a", left), run(tmp_path / "b", left | {101: "Infinity", 240: "NaN"})]).pairs[0].curves
    assert [value for value in curve.right if value != 3.0] == ["Infinity", "NaN"]
    assert curve.steps[curve.right.index("Infinity")] in (101, 102)
    assert set(curve.left) == {3.0}


def test_runs_that_share_no_step_have_no_curve(tmp_path):
    assert compare([run(tmp_path / "a", {1: 3.0}), run(tmp_path / "b", {1: 3.1})]).pairs[0].curves == []
