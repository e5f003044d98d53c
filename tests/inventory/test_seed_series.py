"""FX-1 to FX-8 and DR-1 to DR-3 as the mission prints them, and stretched to 60 and 600 points, read from files."""

import json
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report
from tests.inventory.written_runs import Model

WRITTEN = pytest.mark.parametrize(("points", "form"), [(6, "scalars"), (6, "trainer"), (60, "csv"), (600, "scalars")])
FORMS = pytest.mark.parametrize("form", ["scalars", "csv", "trainer"])
SERIES = {
    "FX-1": ("train_loss_raw", [5.1, 3.9, 3.1, 2.7, 2.5, 2.4], [5.1, 3.9, 3.2, 3.8, 2.9, 3.6], {"sev1", "sev2"}),
    "FX-2": ("overflow_rate", [12, 3, 1, 0, 0, 0], [12, 10, 12, 15, 14, 13], {"sev0", "sev1"}),
    "FX-3": ("max_attn_logit", [100, 100, 95, 90, 85, 80], [120, 250, 500, 850, 1100, 1150], {"sev1"}),
    "FX-4": ("attn_entropy", [2.2, 2.0, 2.1, 2.0, 1.9, 2.0], [2.2, 1.6, 0.8, 0.2, 0.1, 0.1], {"sev1"}),
    "FX-5": ("moe_drop_rate", [0.2, 0.1, 0, 0, 0, 0], [0.2, 0.6, 1.2, 1.4, 1.1, 1.3], {"sev1"}),
    "FX-6": ("mfu", [55, 56, 55, 55, 56, 55], [55, 54, 48, 46, 45, 46], {"sev1", "sev2"}),
}
"""Row: name, healthy values, ill values, and how grave the mission calls the ill ones; six points are no long window yet."""


def stretched(values: list[float], points: int) -> list[float]:
    """Return as many values with half a percent of noise, on straight lines between those given."""
    if points == len(values):
        return [float(value) for value in values]
    lines = np.interp(np.linspace(0, len(values) - 1, points), range(len(values)), values)
    noise = np.random.default_rng(points).normal(size=points)
    return np.clip(lines * (1 + 0.005 * noise), 0, None).round(5).tolist()


def steps_of(points: int) -> list[int]:
    """Return steps up to 600, however many there are of them."""
    return [600 * (index + 1) // points for index in range(points)]


def logged(form: str, folder: Path, steps: list[int], columns: dict[str, list[float]]) -> Path:
    """Write a log in one of three forms and return its path."""
    rows = [{"step": step, **{name: values[index] for name, values in columns.items()}} for index, step in enumerate(steps)]
    if form == "scalars":
        (folder / "scalars.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
        return folder
    rows = [{"loss" if key == "train_loss_raw" else key: value for key, value in row.items()} for row in rows]
    if form == "csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        (folder / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder / "log.csv"
    state = {"log_history": rows, "global_step": steps[-1], "max_steps": steps[-1]}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder / "trainer_state.json"


@pytest.mark.parametrize("row", SERIES)
@WRITTEN
def test_the_ill_series_is_found(row: str, points: int, form: str, tmp_path: Path) -> None:
    name, _, ill, grave = SERIES[row]
    report = triage(logged(form, tmp_path, steps_of(points), {name: stretched(ill, points)}))
    assert report.severity in grave, [(each.code, each.severity, each.message) for each in report.findings]


@pytest.mark.parametrize("row", SERIES)
@WRITTEN
def test_the_healthy_series_is_silent(row: str, points: int, form: str, tmp_path: Path) -> None:
    name, healthy, _, _ = SERIES[row]
    report = triage(logged(form, tmp_path, steps_of(points), {name: stretched(healthy, points)}))
    assert report.severity in (None, "note"), [(each.code, each.message) for each in report.findings]


NAMES = pytest.mark.parametrize(
    "names",
    [
        ("loss_regular", "loss_irregular"),
        ("slice_val_loss/regular", "slice_val_loss/irregular"),
        ("regular_loss", "irregular_loss"),
    ],
)


def told_of_tau(report: Report) -> list[tuple[str, str]]:
    return [(each.severity, each.message) for each in report.findings if each.code == "SLIC002"]


@NAMES
@FORMS
def test_fx_7_and_dr_3_the_tau_of_the_drill_is_worrying(names: tuple[str, str], form: str, tmp_path: Path) -> None:
    if form == "scalars" and names[0] == "regular_loss":
        pytest.skip("our own scalars go by their names in the catalogue")
    report = triage(logged(form, tmp_path, [500], {names[0]: [1.8], names[1]: [3.4]}))
    assert report.derived is not None
    assert report.derived.tau is not None
    assert report.derived.tau.last == pytest.approx(1.6)
    assert told_of_tau(report) == [("sev2", "near step 500 tau is 1.6 nats, above the expected 0.5 to 1: worrying")]
    assert report.severity == "sev2"


COURSE = [0.0, 0.3, 0.75, 0.7, 0.5, 0.4, 0.35]
"""Tau of FX-8 at steps 0 to 1,500: about 0 at first, 0.5 to 1.0 near step 500, 0.2 to 0.5 at the end."""
OFF = {
    "worrying near step 500": ([0.0, 0.7, 1.6, 1.1, 0.6, 0.45, 0.35], "near step 500"),
    "not narrowed": ([0.0, 0.3, 0.75, 0.8, 0.85, 0.85, 0.85], "at the end"),
    "still widening": ([0.0, 0.3, 0.75, 1.0, 1.3, 1.6, 1.8], "at the end"),
    "memorised": ([0.0, 0.3, 0.75, 0.4, 0.1, 0.01, 0.0], "at the end"),
    "apart from the start": ([0.6, 0.6, 0.75, 0.7, 0.5, 0.4, 0.35], "at the start"),
}


def course(form: str, folder: Path, points: int, taus: list[float]) -> Report:
    """Judge a run whose regular slice falls, with an irregular one above it."""
    steps = [round(each) for each in np.linspace(0, 1500, points)]
    rng = np.random.default_rng(points)
    easy = (1.5 + 3.0 * np.exp(-np.array(steps) / 300)) * (1 + 0.002 * rng.normal(size=points))
    wide = np.interp(np.linspace(0, len(taus) - 1, points), range(len(taus)), taus) + 0.01 * rng.normal(size=points)
    return triage(logged(form, folder, steps, {"loss_regular": easy.tolist(), "loss_irregular": (easy + wide).tolist()}))


@pytest.mark.parametrize(("points", "form"), [(7, "scalars"), (60, "csv"), (60, "scalars"), (600, "trainer")])
def test_fx_8_the_expected_course_of_tau_is_silent(points: int, form: str, tmp_path: Path) -> None:
    report = course(form, tmp_path, points, COURSE)
    assert told_of_tau(report) == []
    assert report.derived is not None
    assert report.derived.tau is not None
    assert 0.6 < float(report.derived.tau.peak) < 0.9
    assert 400 <= report.derived.tau.peak_step <= 800


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("points", [7, 60, 600])
def test_fx_8_each_part_of_the_course_that_is_off_is_named(points: int, off: str, tmp_path: Path) -> None:
    taus, part = OFF[off]
    found = told_of_tau(course("scalars", tmp_path, points, taus))
    assert [message.startswith(part) for _, message in found] == [True], found
    assert {severity for severity, _ in found} <= {"sev2", "note"}


def checkpoints(folder: Path, steps: list[int], of_step: dict[str, dict[str, list[float]]]) -> Report:
    """Judge checkpoints with some numbers of one tensor or module: section, then field, then values by step."""
    for index, step in enumerate(steps):
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": 2.0 + 2.5 * float(np.exp(-step / 200))}
        for place, fields in of_step.items():
            section, name = place.split("/")
            document[section] = {name: {key: values[index] for key, values in fields.items()}}
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document), encoding="utf-8")
    return triage(folder)


@pytest.mark.parametrize("points", [2, 6, 11, 60])
def test_dr_1_half_as_much_again_in_a_hundred_steps_is_no_alarm(points: int, tmp_path: Path) -> None:
    sizes = stretched([12.0, 18.0], points)
    steps = np.linspace(0, 100, points).astype(int).tolist()
    report = checkpoints(tmp_path, steps, {"activations/block_1_out": {"mean": sizes, "std": [each / 10 for each in sizes]}})
    assert report.severity in (None, "note"), [(each.code, each.message) for each in report.findings]


@pytest.mark.parametrize("points", [2, 6, 11, 60])
def test_dr_2_a_spectral_norm_that_grows_twelvefold_by_step_500_is_of_high_concern(points: int, tmp_path: Path) -> None:
    steps = np.linspace(0, 500, points).astype(int).tolist()
    report = checkpoints(tmp_path, steps, {"weights/layer.2.attn.qkv": {"spectral_norm": stretched([1.2, 14.0], points)}})
    (found,) = [each for each in report.findings if each.code == "WGT005"]
    assert found.severity == "sev2"
    assert "attn_entropy" in (found.help or "")
    assert "max_attn_logit" in (found.help or "")


@pytest.mark.parametrize("name", ["spectral_norm", "spectral_norm/layer.2.attn.qkv"])
@pytest.mark.parametrize(("end", "severity"), [(14.0, "sev2"), (2.4, None)])
@pytest.mark.parametrize("points", [2, 6, 60])
def test_dr_2_is_judged_of_a_logged_number_as_well(points: int, end: float, severity: str, name: str, tmp_path: Path) -> None:
    steps = np.linspace(0, 500, points).astype(int).tolist()
    report = triage(logged("scalars", tmp_path, steps, {name: stretched([1.2, end], points)}))
    assert [each.severity for each in report.findings if each.code == "WGT005"] == ([severity] if severity else [])


@pytest.mark.parametrize("points", [2, 6, 11, 60])
def test_dr_2_a_spectral_norm_that_doubles_is_well(points: int, tmp_path: Path) -> None:
    steps = np.linspace(0, 500, points).astype(int).tolist()
    report = checkpoints(tmp_path, steps, {"weights/layer.2.attn.qkv": {"spectral_norm": stretched([1.2, 2.4], points)}})
    assert report.severity in (None, "note")


@pytest.mark.parametrize("points", [6, 60])
@pytest.mark.parametrize("ill", [False, True])
def test_fx_4_the_entropy_of_every_head_in_checkpoints(points: int, ill: bool, tmp_path: Path) -> None:
    _, healthy, collapse, grave = SERIES["FX-4"]
    steps = steps_of(points)
    levels = dict(zip(steps, stretched(collapse if ill else healthy, points), strict=True))
    model = Model(steps=tuple(steps), entropy=lambda step, layer: levels[step], keys=True)
    report = triage(model.write(tmp_path / "run", recorded=False))
    found = {each.severity for each in report.findings if each.code == "ATTN001"}
    assert found & grave if ill else not found - {"note"}
