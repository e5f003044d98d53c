"""Every number of the catalogue, logged by its name alone: the playbook's bad shape is found, its good one is silent.

At as many points as the playbook prints, and stretched to 15, 60 and 600 with one percent of noise; as scalars and as a CSV.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report
from ckaudit.metrics.catalogue import entries
from tests.loops import check_each

ROWS = {row: (name, entry) for name, entry in entries().items() for row in entry.rows if row.startswith("M")}
COUNTS = {
    "tokens_seen",
    "steps_seen",
    "opt_state_finite",
    "checkpoint_ok",
    "skipped_updates",
    "nan_inf_events",
    "restart_rate",
    "error_event_rate",
    "heartbeat_missing",
    "eval_artifact_hash",
    "doc_repeat_hotspots",
    "rtp_prompt_stats",
    "checkpoint_size",
}
"""Numbers without noise of their own."""

NOTED = {
    "token_kl_drift": "the lab's planned curriculum over sources goes further, and is healthy",
    "grad_noise_scale": "the playbook: guidance, and its estimator is noisy; where a hump is less than fourfold",
}
"""What may be no more than a note, each with its reason."""

FOUND_BY = {
    "M01": {"DATA010", "VALUE001"},
    "M02": {"AMP002"},
    "M12": {"NUM001"},
    "M13": {"AMP001"},
    "M14": {"AMP001"},
    "M15": {"AMP001"},
    "M19": {"ATTN002"},
    "M26": {"MOE002"},
    "M27": {"MOE001"},
    "M29": {"DATA006"},
    "M30": {"DATA006"},
    "M31": {"DATA007"},
    "M32": {"DATA007"},
    "M33": {"DATA007"},
    "M34": {"DATA007"},
    "M35": {"DATA004"},
    "M37": {"DATA005"},
    "M38": {"DATA008"},
    "M39": {"SYS006"},
    "M40": {"SYS002"},
    "M41": {"SYS006"},
    "M42": {"SYS004"},
    "M43": {"SYS005"},
    "M44": {"SYS001"},
    "M45": {"RANK004"},
    "M47": {"RANK001"},
    "M48": {"SAFE001"},
    "M49": {"SAFE002"},
    "M51": {"SAFE001"},
    "M52": {"SAFE003"},
    "M56": {"SLIC001"},
    "M58": {"EVAL002"},
    "M60": {"NUM001"},
    "M61": {"FILE002"},
    "M64": {"SYS007"},
    "M65": {"SYS008"},
    "M66": {"SYS009"},
    "M67": {"RANK003"},
}
"""Rules of one of which a finding is expected; of the other rows PLAY001, or the rules on losses, gradients and attention."""

CASES = [("printed", "scalars"), (15, "scalars"), (60, "csv"), (600, "scalars")]
"""Lengths and forms: what reads a CSV does not look at how long it is."""

TOO_SMALL = {("M04", "printed")}
"""A drift of a moving average by 9 %, which so few points do not tell from what losses usually scatter."""

LEAST = {"M12": "sev0", "M60": "sev0", "M61": "sev0", "M14": "sev1", "M19": "sev1", "M26": "sev1", "M67": "sev1"}
"""Severities that the mission's policy asks for; sev2 elsewhere."""


def stretched(name: str, shape: tuple[float, ...], points: int) -> list[float]:
    """Return a shape at so many points, between its own ones, with a little noise."""
    if points == len(shape):
        return list(shape)
    values = np.interp(np.linspace(0, len(shape) - 1, points), np.arange(len(shape)), shape)
    if name == "loss_scale":
        return list(2.0 ** np.round(np.log2(values)))
    if name == "learning_rate" or name == "lr_phase":
        return values.tolist()
    if name in COUNTS:
        return np.round(values).tolist()
    noisy = values * (1 + 0.01 * np.random.default_rng(points).standard_normal(points))
    return np.minimum(noisy, 1.0).tolist() if name == "moe_util_entropy" else noisy.tolist()


def verdict(folder: Path, name: str, values: list[float], *, gap: int, form: str) -> Report:
    """Return what is said of a log of one number."""
    folder.mkdir(exist_ok=True)
    lines = [{"step": gap * place, name: value} for place, value in enumerate(values)]
    if form == "csv":
        path = folder / "log.csv"
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["step", name])
            writer.writeheader()
            writer.writerows(lines)
        return triage(path)
    (folder / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return triage(folder)


def grave(report: Report) -> set[tuple[str, str]]:
    return {(each.code, each.severity) for each in report.findings if each.severity != "note"}


def gap_of(points: int) -> int:
    return {600: 1, 60: 20}.get(points, 100)


@pytest.mark.parametrize("row", sorted(ROWS))
def test_the_bad_shape_is_found(tmp_path: Path, row: str) -> None:
    check_each(CASES, lambda case: _is_found(tmp_path, row, *case), name="length, form")


def _is_found(tmp_path: Path, row: str, length: int | str, form: str) -> None:
    name, entry = ROWS[row]
    points = len(entry.bad_shape) if isinstance(length, str) else length
    folder = tmp_path / f"{length}-{form}"
    report = verdict(folder, name, stretched(name, entry.bad_shape, points), gap=gap_of(points), form=form)
    found = {each.code for each in report.findings} if name in NOTED else {code for code, _ in grave(report)}
    assert bool(found) is ((row, length) not in TOO_SMALL), (row, name)
    if not found:
        return
    assert not FOUND_BY.get(row) or found & FOUND_BY[row], (row, name, found)
    order = ("sev0", "sev1", "sev2", "note")
    worst = min((each.severity for each in report.findings), key=order.index)
    assert name in NOTED or order.index(worst) <= order.index(LEAST.get(row, "sev2"))


@pytest.mark.parametrize("row", sorted(ROWS))
def test_the_good_shape_is_silent(tmp_path: Path, row: str) -> None:
    check_each(CASES, lambda case: _is_silent(tmp_path, row, *case), name="length, form")


def _is_silent(tmp_path: Path, row: str, length: int | str, form: str) -> None:
    name, entry = ROWS[row]
    points = len(entry.good_shape) if isinstance(length, str) else length
    report = verdict(
        tmp_path / f"{length}-{form}", name, stretched(name, entry.good_shape, points), gap=gap_of(points), form=form
    )
    assert grave(report) == set(), (row, name)


PRINTED = {
    ("overflow_rate", "good"): [12, 3, 1, 0, 0, 0],
    ("overflow_rate", "bad"): [12, 10, 12, 15, 14, 13],
    ("max_attn_logit", "good"): [100, 100, 95, 90, 85, 80],
    ("max_attn_logit", "bad"): [120, 250, 500, 850, 1100, 1150],
    ("moe_drop_rate", "good"): [0.2, 0.1, 0, 0, 0, 0],
    ("moe_drop_rate", "bad"): [0.2, 0.6, 1.2, 1.4, 1.1, 1.3],
    ("mfu", "good"): [55, 56, 55, 55, 56, 55],
    ("mfu", "bad"): [55, 54, 48, 46, 45, 46],
}
"""The mission's figures FX-2, FX-3, FX-5 and FX-6, in the units of their axes."""


@pytest.mark.parametrize(("points", "form"), [(6, "scalars"), (60, "csv"), (600, "scalars")])
@pytest.mark.parametrize(("name", "shape"), PRINTED)
def test_the_missions_figures_have_the_missions_verdict(tmp_path: Path, name: str, shape: str, points: int, form: str) -> None:
    values = stretched(name, tuple(map(float, PRINTED[name, shape])), points)
    report = verdict(tmp_path, name, values, gap=1, form=form)
    found = {severity for _, severity in grave(report)}
    assert found == set() if shape == "good" else found & ({"sev2", "sev1"} if name == "mfu" else {"sev1", "sev0"})


@pytest.mark.parametrize("points", [6, 15, 60, 600])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_slide_of_the_utilisation_to_a_half_is_a_collapse(tmp_path: Path, points: int, scale: float) -> None:
    values = stretched("mfu", (0.55 * scale, 0.3 * scale), points)
    report = verdict(tmp_path, "mfu", values, gap=10, form="scalars")
    assert ("SYS006", "sev1") in grave(report)
    assert (scale == 1.0) != any(note.startswith("mfu is not below 1 and was read as percent") for note in report.notes)


def test_a_number_off_its_playbook_brings_what_its_playbook_says_to_do(tmp_path: Path) -> None:
    report = verdict(tmp_path, "checkpoint_time", [20.0, 22.0, 28.0, 41.0, 60.0, 90.0], gap=100, form="scalars")
    (found,) = [each for each in report.findings if each.code == "PLAY001"]
    assert found.help is not None
    assert entries()["checkpoint_time"].mitigations[0] in found.help
