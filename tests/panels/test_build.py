"""The pictures of recorded runs: values are the run's own, what is missing is said, and every finding has a place."""

import math
from base64 import b64decode
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ckaudit.audit.engine import triage_run
from ckaudit.audit.load_run import at_step, open_run
from ckaudit.contract.io.grids import unpack
from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.panels import Chart, Panels, Tab, Trace
from ckaudit.contract.schema.report import Report
from ckaudit.diff.checkpoint_values import checkpoints_of, read_document
from ckaudit.diff.compare import compare
from ckaudit.metrics import metrics
from ckaudit.panels.build import panel_reads, panels
from ckaudit.panels.tab import tabs
from ckaudit.rules import rules
from ckaudit.run.run import Run
from ckaudit.run.series import Series

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
NAMES = sorted(path.name for path in RUNS.iterdir() if (path / "run.json").exists())
HOSTILE = '<img src=x onerror="alert(1)">\x1b[31m</script>'


def opened(path: Path) -> tuple[Run, Report]:
    run = open_run(path, reads=panel_reads())
    return run, triage_run(run)


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[Run, Report, Panels]]:
    found = {}
    for name in NAMES:
        run, report = opened(RUNS / name)
        found[name] = run, report, panels(run, report, path=RUNS / name)
    return found


def chart_of(document: Panels, name: str) -> Chart:
    return next(chart for tab in document.tabs for chart in tab.charts if chart.id == name)


def tab_of(document: Panels, name: str) -> Tab:
    return next(tab for tab in document.tabs if tab.id == name)


def number(value: Number | None) -> float:
    return math.nan if value is None else float(value)


def number_at(series: Series, step: int) -> float:
    return float(series.values[series.steps.tolist().index(step), 0])


@pytest.mark.parametrize("name", NAMES)
def test_every_value_drawn_is_one_that_the_run_has(name: str, made: dict[str, tuple[Run, Report, Panels]]) -> None:
    run, _, document = made[name]
    compared = 0
    for tab in document.tabs:
        for chart in tab.charts:
            if chart.shape == "lines" and len(chart.metrics) == 1 and chart.id != "learning_rate":
                series = metrics()[chart.metrics[0]](run)
                for trace in chart.traces:
                    place = series.labels.index(trace.name) if len(series.labels) > 1 else 0
                    own = {
                        int(step): float(value)
                        for step, value, known in zip(
                            series.steps, series.values[:, place], series.recorded[:, place], strict=True
                        )
                        if known
                    }
                    drawn, expected = [number(value) for value in trace.y], [own[int(step)] for step in trace.x]
                    np.testing.assert_allclose(drawn, expected, rtol=1e-4, atol=1e-12)
                    compared += len(drawn)
    assert compared > 300


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_a_map_is_the_one_of_its_row_and_step(name: str, made: dict[str, tuple[Run, Report, Panels]]) -> None:
    run, _, document = made[name]
    maps = [chart for tab in document.tabs for chart in tab.charts if chart.matrix and chart.id != "expert_load"]
    for chart in maps:
        series = metrics()[chart.metrics[0]](run)
        rows = {int(step): row for row, step in enumerate(series.steps)}
        assert chart.matrix is not None
        for label, cells in zip(chart.matrix.rows, chart.matrix.values, strict=True):
            column = series.labels.index(label)
            places = [rows[int(step)] for step in chart.matrix.columns]
            known = series.recorded[places, column]
            assert [cell is not None for cell in cells] == known.tolist()
            drawn = [number(cell) for cell in cells if cell is not None]
            np.testing.assert_allclose(drawn, series.values[places, column][known], rtol=6e-3, atol=1e-12)
    assert len(maps) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_every_finding_leads_to_a_chart_that_shows_its_metric(name: str, made: dict[str, tuple[Run, Report, Panels]]) -> None:
    _, report, document = made[name]
    assert [link.finding for link in document.links] == list(range(len(report.findings)))
    charts = {(tab.id, chart.id) for tab in document.tabs for chart in tab.charts}
    shown = [link for link in document.links if link.chart is not None]
    assert all((link.tab, link.chart) in charts for link in shown)
    assert len(shown) == sum(each.code in {rule.code for rule in rules().values()} for each in report.findings)
    assert all(link.tab in {tab.id for tab in document.tabs} for link in document.links)


@pytest.mark.parametrize("name", NAMES)
def test_the_document_follows_its_contract(name: str, made: dict[str, tuple[Run, Report, Panels]]) -> None:
    document = made[name][2]
    again = msgspec.json.decode(msgspec.json.encode(document), type=Panels)
    assert [tab.id for tab in again.tabs] == [tab.id for tab in document.tabs]
    names = [chart.id for tab in document.tabs for chart in tab.charts]
    assert len(names) == len(set(names))
    assert all(name in metrics() for tab in document.tabs for chart in tab.charts for name in chart.metrics)
    told = {each.id: set(each.reads) for each in tabs()}
    for tab in document.tabs:
        drawn = [chart for chart in tab.charts if not chart.id.startswith("finding_")]
        assert {name for chart in drawn for name in chart.metrics} <= told[tab.id], tab.id


def test_words_agree_with_what_is_known_of_the_runs(made: dict[str, tuple[Run, Report, Panels]]) -> None:
    words = {name: {tab.id: tab.word for tab in document.tabs} for name, (_, _, document) in made.items()}
    assert words["healthy"]["training"] == words["healthy"]["gradients"] == words["healthy"]["health"] == "good"
    assert words["lr_too_high"]["training"] == words["lr_too_high"]["attention"] == "bad"
    assert words["nan_batch"]["training"] == words["nan_batch"]["health"] == "bad"
    assert words["zeroed_projection"]["health"] == "bad"
    assert words["overfit_tiny"]["learning"] == "bad"


def test_what_was_recorded_as_nan_is_a_word_and_what_was_not_recorded_is_said(
    made: dict[str, tuple[Run, Report, Panels]],
) -> None:
    document = made["nan_batch"][2]
    loss = next(trace for trace in chart_of(document, "loss").traces if trace.name == "train_loss_raw")
    at = dict(zip(loss.x, loss.y, strict=True))
    assert at[150] == "NaN"
    assert isinstance(at[149], float)
    missing = " ".join(tab_of(document, "machine").missing)
    assert "mfu was not recorded; to record it: " in missing
    assert "comm_time_frac makes no sense here: one process trains alone" in missing
    assert not any(chart.id == "utilization" for chart in tab_of(document, "machine").charts)


def test_the_uniform_guess_and_the_baseline_are_lines(made: dict[str, tuple[Run, Report, Panels]]) -> None:
    lines = dict(chart_of(made["healthy"][2], "loss").lines)
    assert lines["uniform guess, ln 28"] == pytest.approx(math.log(28))
    assert 2.0 < next(float(value) for name, value in lines.items() if name.startswith("1-gram")) < math.log(28)


def test_histograms_and_matrices_are_those_of_the_files(made: dict[str, tuple[Run, Report, Panels]]) -> None:
    document = made["experts_two_ranks"][2]
    files = checkpoints_of(RUNS / "experts_two_ranks")
    written = {step: read_document(file.path, file.shown) for step, file in files.items()}
    ridges = chart_of(document, "weight_ridges").ridges
    assert len({ridge.where for ridge in ridges}) == 12
    for ridge in ridges:
        histogram = written[ridge.step]["weights"][ridge.where]["histogram"]
        total = sum(histogram["counts"])
        assert [number(each) for each in ridge.shares] == pytest.approx([each / total for each in histogram["counts"]], abs=6e-5)
        low, high = histogram["bins"]["range"]
        assert (ridge.edges[0], ridge.edges[-1]) == pytest.approx((low, high), rel=1e-4)
    for frame in chart_of(document, "weight_grids").frames:
        grid = written[frame.step]["weights"][frame.where]["sampled_grid_32x32"]
        own = np.frombuffer(b64decode(grid["data"]), np.uint8).reshape(grid["shape"]) / 255
        own = grid["min"] + (grid["max"] - grid["min"]) * own
        np.testing.assert_allclose(unpack(frame.cells), own, atol=(grid["max"] - grid["min"]) / 255)


def test_parts_of_a_step_add_up_to_the_step(made: dict[str, tuple[Run, Report, Panels]]) -> None:
    run, _, document = made["experts_two_ranks"]
    chart = chart_of(document, "step_parts")
    series = metrics()["step_time"](run)
    own = dict(zip(series.steps.tolist(), series.values[:, 0].tolist(), strict=True))
    assert chart.stacked
    for place, step in enumerate(chart.traces[0].x):
        shares = [number_at(metrics()[name](run), int(step)) for name in chart.metrics[1:]]
        parts = [number(trace.y[place]) for trace in chart.traces]
        assert parts[:-1] == pytest.approx([share * own[int(step)] for share in shares], rel=1e-3)
        assert sum(parts) == pytest.approx(own[int(step)] * max(1.0, sum(shares)), rel=1e-3)


def test_shares_of_the_experts_add_up_to_one(made: dict[str, tuple[Run, Report, Panels]]) -> None:
    matrix = chart_of(made["experts_two_ranks"][2], "expert_load").matrix
    assert matrix is not None
    for layer in {row.partition("/")[0] for row in matrix.rows}:
        rows = [cells for name, cells in zip(matrix.rows, matrix.values, strict=True) if name.startswith(layer)]
        for column in zip(*rows, strict=True):
            assert sum(map(number, column)) == pytest.approx(1, abs=2e-3)  # of four shares of three digits


def test_two_runs_stand_on_the_same_axes(made: dict[str, tuple[Run, Report, Panels]]) -> None:
    run, report, _ = made["nan_batch"]
    other = (*made["healthy"][:2], RUNS / "healthy")
    compared = compare([RUNS / "nan_batch", RUNS / "healthy"])
    document = panels(run, report, path=RUNS / "nan_batch", other=other, comparison=compared)
    traces = [trace for trace in chart_of(document, "both_train_loss_raw").traces if trace.name == "train_loss_raw"]
    assert [trace.run for trace in traces] == [0, 1]
    first, second = (dict(zip(trace.x, trace.y, strict=True)) for trace in traces)
    assert first[1] == second[1]
    tab = tab_of(document, "other_run")
    assert tab.word == "watch"
    assert document.beside is not None
    assert (document.beside.word, document.beside.severity) == (compared.word, other[1].severity)
    assert any(mark.kind == "parting" and mark.step == 150 for mark in chart_of(document, "both_train_loss_raw").marks)
    assert len(document.subjects) == 2
    alone = made["nan_batch"][2]
    assert all(tab.id != "other_run" for tab in alone.tabs)


def test_a_report_on_an_earlier_step_shows_nothing_later() -> None:
    run = at_step(open_run(RUNS / "lr_too_high", reads=panel_reads()), 60)
    document = panels(run, triage_run(run), path=RUNS / "lr_too_high")
    for tab in document.tabs:
        for chart in tab.charts:
            if chart.shape == "lines":
                assert all(int(step) <= 60 for trace in chart.traces for step in trace.x)
            assert all(frame.step <= 60 for frame in chart.frames)
            assert all(ridge.step <= 60 for ridge in chart.ridges)


def test_names_are_data(tmp_path: Path) -> None:
    stats = {"norm": 1.0, "histogram": {"bins": [0.0, 1.0, 2.0], "counts": [1, 3]}}
    for step in (10, 20):
        checkpoint = {
            "schema_version": "ck.analysis.v1",
            "step": step,
            "loss": 2.0,
            "weights": {HOSTILE: {"shape": [2, 2], "frobenius_norm": 1.0, "sampled_grid_32x32": [[1.0, "NaN"], [2.0, 3.0]]}},
            "gradients": {HOSTILE: stats},
        }
        file = tmp_path / f"analysis_checkpoint_step_{step:08d}.json"
        file.write_bytes(msgspec.json.encode(checkpoint))
    run, report = opened(tmp_path)
    document = panels(run, report, path=tmp_path)
    matrix = chart_of(document, "tensor_gradients").matrix
    assert matrix is not None
    assert matrix.rows == [HOSTILE]
    frames = chart_of(document, "weight_grids").frames
    assert [(frame.where, frame.cells) for frame in frames] == [(HOSTILE, [[1, "NaN"], [2, 3]])] * 2
    ridges = chart_of(document, "gradient_ridges").ridges
    assert [ridge.shares for ridge in ridges] == [[0.25, 0.75]] * 2


def test_a_log_of_another_program_says_why_it_has_no_histograms(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    lines = [f"{step},{3 / step + 1},{1 + 1 / step}" for step in range(1, 300)]
    log.write_text("\n".join(["step,train_loss,grad_norm", *lines]))
    run, report = opened(log)
    document = panels(run, report, path=log)
    assert "histogram of weights stands in checkpoints, and none was recorded" in " ".join(tab_of(document, "movement").missing)
    assert tab_of(document, "movement").word == "unknown"
    assert tab_of(document, "training").charts
    gradients = tab_of(document, "gradients")
    assert gradients.word == "unknown"  # one norm of all says nothing of the layers
    assert gradients.answer.startswith("Does the gradient reach every layer? ")
    assert any(chart.id == "gradient_norm" for chart in gradients.charts)


def test_points_of_a_trace_are_few(made: dict[str, tuple[Run, Report, Panels]]) -> None:
    def longest(tab: Tab) -> int:
        traces: list[Trace] = [trace for chart in tab.charts for trace in chart.traces]
        return max((len(trace.x) for trace in traces), default=0)

    assert max(map(longest, made["healthy"][2].tabs)) <= 800
