"""The table of metrics, letter by letter. `CKAUDIT_GOLDEN=1 pytest tests/reports` rewrites the files; read the diff."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit.measure import MeasuredMetric, Measurement
from ckaudit.contract.schema.metrics import Missing
from ckaudit.reports.terminal.metrics import draw
from ckaudit.reports.view import View
from ckaudit.run.series import Series, single
from tests.loops import for_each

GOLDEN = Path(__file__).parents[1] / "golden_metrics"


@cache
def measurement():
    """A falling loss, a family of which one tensor is NaN, a single point, a name in Chinese, and three without a value."""
    steps = np.arange(1, 2_001)
    loss = single("train_loss_raw", "nats/token", steps, 1 + 3 * np.exp(-steps / 300))
    names = tuple(f"model.layers.{index}.self_attn.q_proj.weight" for index in range(24))
    norms = np.abs(np.sin(np.arange(40)[:, None] + np.arange(24))) + 0.5
    norms[39, 5] = np.nan
    known = np.ones_like(norms, bool)
    known[:, 7] = np.arange(40) < 9
    family = Series("gradient_norm", "1", np.arange(40) * 50, names, norms, known)
    one = single("initial_loss_excess", "nats/token", steps[:1], np.array([0.25]))
    trend = single("tau_trend", "nats/token per 1,000 steps", steps[::100], -np.arange(20.0))
    slices = Series(
        "slice_val_loss", "nats/token", steps[:2], ("规则的", "bad\x1b[2J"), np.array([[2.0, 1.0], [np.inf, 0.5]]), known[:2, :2]
    )
    found = (family, one, trend, slices, loss)
    return Measurement(
        subject="run",
        step=2_000,
        measured=tuple(MeasuredMetric(each.name, "Title.", each.unit, "source", each) for each in found),
        missing=(
            Missing(name="val_loss", reason="not_recorded"),
            Missing(name="val_rise", reason="not_recorded"),
            Missing(name="loss_scale", reason="not_in_these_steps"),
        ),
        notes=("scalars.jsonl: the last line is cut off; it was left out",),
        files=3,
    )


CASES = {
    **{f"overview.{width}.txt": (View(width=width), {}) for width in (40, 60, 80, 100, 132)},
    "overview.ascii.txt": (View(width=80, unicode=False), {}),
    "overview.colour.txt": (View(width=80, colour=True), {}),
    "overview.verbose.txt": (View(width=80, verbose=True), {}),
    "labels.60.txt": (View(width=60), {"each_label": True}),
    "labels.all.txt": (View(width=100), {"each_label": True, "max_labels": None}),
}


@pytest.mark.parametrize("file", CASES)
def test_the_drawing_is_the_one_on_file(file):
    view, asked = CASES[file]
    drawn = draw(measurement(), view, **asked)
    path = GOLDEN / file
    if os.environ.get("CKAUDIT_GOLDEN"):
        path.write_text(drawn, encoding="utf-8", newline="\n")
    assert drawn.encode() == path.read_bytes()


def test_no_golden_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


@cache
def labels(width, has_unicode):
    return draw(measurement(), View(width=width, unicode=has_unicode), each_label=True)


@for_each("width, unicode", [*((width, True) for width in range(40, 133)), *((width, False) for width in range(40, 133, 4))])
def test_no_line_is_wider_than_the_screen_and_no_column_is_lost_on_a_wide_one(width, unicode):
    from rich.cells import cell_len

    lines = labels(width, unicode).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert {"metric", "last", "trend"} <= set(lines[0].split())
    assert not any(character in "".join(lines) for character in "\x1b\t")
    if width >= 100:
        assert {"shape", "unit", "where", "of"} <= set(lines[0].split())
    if width >= 122:
        assert "points" in lines[0]


@for_each("width", range(40, 133))
def test_a_column_without_room_is_named_and_what_is_to_be_typed_stays_whole(width):
    drawn = labels(width, True)
    missing = {"trend", "shape", "unit", "points", "step", "where", "of"} - set(drawn.splitlines()[0].split())
    left_out = drawn.replace("\n", " ").partition("no room for ")[2].partition(":")[0]
    assert {name.strip() for name in left_out.split(",") if name} == missing
    assert "(-v names them)" in drawn
    assert "  ... and 4 more (--all)" in drawn.splitlines()


@for_each("width", range(80, 133))
def test_where_tells_tensors_apart(width):
    found = measurement().measured[0]
    line = draw(measurement(), View(width=width)).splitlines()[1]
    assert found.series.labels[5].split(".")[2] == "5"
    assert ".5." in line
    assert "q_proj" in line or "..q." in line or ".q.w" in line
