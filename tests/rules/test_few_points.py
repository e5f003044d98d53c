"""Illnesses of gradients and of movement, in folders of the seed's fields alone and in logs, at any number of points."""

import json
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit.engine import triage
from ckaudit.audit.judge import apply_rules
from ckaudit.audit.load_run import open_run
from ckaudit.rules import rules
from tests.rules.seed_folders import ordinary_norm, write_folder

POINTS = (3, 5, 14)


def at_points(cases):
    """Return each case with the fewest checkpoints, and with one of the other numbers of them in turn."""
    return [(name, points) for place, name in enumerate(cases) for points in (3, (5, 14)[place % 2])]


JUDGED = [rule for code, rule in rules().items() if code.startswith(("GRAD", "MOVE", "CLIP", "WGT", "RESUME"))]
READS = frozenset().union(*(metric.paths for rule in JUDGED for metric in rule.metrics))


def _block(name):
    return int(name.split(".")[1]) if name.startswith("layer.") else None


def _with(factor_of):
    """Return gradient norms that are ordinary ones times a factor of block or tensor and progress."""
    return lambda name, progress: ordinary_norm(name, progress) * factor_of(name, progress)


def _vanishing(name, progress):
    block = _block(name)
    return ordinary_norm(name, progress) if block is None else 1e-12 * 10 ** (block)


def _grave(path):
    """Return {code: places} of what the rules on gradients and weights find that is graver than a note."""
    found = {}
    for finding in apply_rules(open_run(path, reads=READS), JUDGED).findings:
        if finding.severity != "note":
            found.setdefault(finding.code, set()).update({finding.where, *finding.also})
    return found


FIVE_OF_SIX = [f"layer.{block}." for block in range(5)]
ILL = {
    "the gradient explodes": ("GRAD002", {"norm": _with(lambda name, progress: 1e4**progress)}),
    "one tensor explodes": ("GRAD002", {"norm": _with(lambda name, progress: 1e4**progress if name == "layer.2.wq" else 1)}),
    "it explodes in the last third": ("GRAD002", {"norm": _with(lambda name, progress: 1e4 ** max(0, 3 * progress - 2))}),
    "the gradient vanishes on its way through twelve blocks": ("GRAD001", {"depth": 12, "norm": _vanishing}),
    "a pinch in the middle": ("GRAD001", {"depth": 12, "norm": _with(lambda name, _: 1e-4 if _block(name) in (5, 6) else 1)}),
    "one block": ("GRAD001", {"depth": 12, "norm": _with(lambda name, _: 1e-4 if _block(name) == 3 else 1)}),
    "the last block": ("GRAD001", {"depth": 12, "norm": _with(lambda name, _: 1e-4 if _block(name) == 11 else 1)}),
    "late in the run": (
        "GRAD001",
        {"norm": _with(lambda name, progress: 1e-4 if _block(name) in (0, 1) and progress > 0.5 else 1)},
    ),
    "one dead tensor": ("GRAD003", {"norm": _with(lambda name, _: 0.0 if name == "layer.2.w1" else 1), "still": ["layer.2.w1"]}),
    "one tensor below 1e-10": ("GRAD003", {"norm": _with(lambda name, _: 1e-11 if name == "layer.2.w1" else 1)}),
    "nothing moves": ("MOVE001", {"still": [""], "loss": lambda _: 5.0}),
    "nothing moves by more than 8e-7": ("MOVE001", {"step": 8e-7, "loss": lambda _: 5.0}),
    "five of six blocks stand still": ("MOVE001", {"still": FIVE_OF_SIX}),
    "the same without sampled elements": ("MOVE001", {"still": FIVE_OF_SIX, "grids": False}),
    "the same of numbers with four digits": ("MOVE001", {"still": FIVE_OF_SIX, "digits": 4}),
    "all blocks stand still while the embedding moves": ("MOVE004", {"still": ["layer."]}),
    "the embedding stands still": ("MOVE001", {"still": ["tok_emb"]}),
}
HEALTHY = {
    "an ordinary run": {},
    "numbers with three digits": {"digits": 3},
    "no sampled elements": {"grids": False},
    "neither": {"grids": False, "digits": 3},
    "small steps": {"step": 1e-3},
    "noise of a decade": {"noise": 0.6},
    "a norm that rises threefold": {"norm": _with(lambda name, progress: 1 + 5 * progress)},
    "large norms, as of plain SGD": {"norm": _with(lambda name, progress: 1000.0)},
    "a frozen trunk without gradients below a head": {
        "still": ["layer.", "tok_emb"],
        "gradients_of": lambda name: name in ("final_norm", "lm_head"),
    },
    "an embedding that holds the norm at first": {
        "norm": lambda name, progress: 5 * (1 - progress) + 0.5 if name == "tok_emb" else ordinary_norm(name, progress)
    },
}


@pytest.mark.parametrize(("name", "points"), at_points(ILL))
def test_an_illness_is_found_at_any_number_of_checkpoints(tmp_path, name, points):
    code, how = ILL[name]
    assert code in _grave(write_folder(tmp_path, points=points, **how))


@pytest.mark.parametrize(("name", "points"), at_points(HEALTHY))
def test_health_is_silent_at_any_number_of_checkpoints(tmp_path, name, points):
    assert _grave(write_folder(tmp_path, points=points, **HEALTHY[name])) == {}


@pytest.mark.parametrize("points", POINTS)
def test_the_places_are_those_that_are_ill(tmp_path, points):
    found = _grave(write_folder(tmp_path / "a", points=points, still=FIVE_OF_SIX))
    assert all(place.startswith("layer.") and not place.startswith("layer.5") for place in found["MOVE001"])
    assert _grave(write_folder(tmp_path / "b", points=points, still=["tok_emb"])) == {"MOVE001": {"tok_emb"}}
    pinch = _with(lambda name, _: 1e-4 if _block(name) in (5, 6) else 1)
    assert _grave(write_folder(tmp_path / "c", points=points, depth=12, norm=pinch)) == {"GRAD001": {"layer.5", "layer.6"}}


def test_the_verdict_of_the_whole_is_the_same(tmp_path):
    for name, (code, how) in list(ILL.items())[::4]:
        report = triage(write_folder(tmp_path / code / str(len(name)), points=5, **how))
        assert report.severity in ("sev1", "sev2")
    for name in ("an ordinary run", "numbers with three digits"):
        assert triage(write_folder(tmp_path / name, points=5, **HEALTHY[name])).severity is None


def test_weights_that_never_change_while_the_loss_falls_are_a_fault_of_the_record(tmp_path):
    report = triage(write_folder(tmp_path, points=10, still=[""]))
    assert (report.severity, {finding.code for finding in report.findings}) == ("note", {"MOVE001"})


@pytest.mark.parametrize(("points", "share"), [(3, 0.72), (3, 0.99), (5, 0.9), (14, 0.72), (14, 0.99)])
def test_one_tensor_dominates_what_is_clipped(tmp_path, points, share):
    def norm(name, _):
        own = np.sqrt(share / (1 - share) * 38)  # beside the 38 other tensors of six blocks
        return own if name == "layer.2.w1" else 1.0

    write_folder(tmp_path, points=points, norm=norm, noise=0.02)
    assert "GRAD007" not in _grave(tmp_path)
    lines = [{"step": 50 * point, "grad_clip_rate": 95.0} for point in range(points)]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert _grave(tmp_path) == {"GRAD007": {"layer.2.w1"}}
    if points == 14:
        report = triage(tmp_path)
        assert (report.severity, report.diagnoses[0].cause) == ("sev2", "one_tensor_dominates")
        assert not any("limit" in knob for knob in (report.diagnoses[0].knob, *(each.help or "" for each in report.findings)))


def _log(path: Path, norms, losses=None):
    """Write a log of gradient norms, and of a loss that falls as it should."""
    rows = [{"step": 10 * (point + 1), "grad_norm": float(norm)} for point, norm in enumerate(norms)]
    for row, loss in zip(rows, losses if losses is not None else (), strict=False):
        row["loss"] = float(loss)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


LENGTHS = (3, 4, 5, 6, 7, 8, 9, 10, 20, 49, 50, 500)


@pytest.mark.parametrize(("points", "seed"), [(points, place % 2) for place, points in enumerate(LENGTHS)])
def test_a_logged_norm_that_explodes_is_found_at_any_length(tmp_path, points, seed):
    random, progress = np.random.default_rng(seed), np.linspace(0, 1, points)
    norms = 0.5 * 1e4**progress * np.exp(random.normal(0, 0.2, points))
    assert "GRAD002" in _grave(_log(tmp_path / "log.jsonl", norms, 2 + 3 * 0.05**progress))


@pytest.mark.parametrize(("points", "seed"), [(points, place % 2) for place, points in enumerate(LENGTHS)])
def test_a_logged_norm_that_vanishes_is_found_at_any_length(tmp_path, points, seed):
    random, progress = np.random.default_rng(seed), np.linspace(0, 1, points)
    norms = 0.5 * 1e-9**progress * np.exp(random.normal(0, 0.2, points))
    assert "GRAD003" in _grave(_log(tmp_path / "log.jsonl", norms, np.full(points, 5.0) + random.normal(0, 0.01, points)))


@pytest.mark.parametrize(
    ("points", "sigma"), [(points, sigma) for place, points in enumerate(LENGTHS) for sigma in ((0.1, 0.4)[place % 2], 0.7)]
)
def test_a_logged_norm_that_stays_is_silent_at_any_length(tmp_path, points, sigma):
    random, progress = np.random.default_rng(points), np.linspace(0, 1, points)
    norms = 0.5 * (1 + 2 * progress) * np.exp(random.normal(0, sigma, points))
    found = _grave(_log(tmp_path / "log.jsonl", norms, 2 + 3 * 0.05**progress))
    assert not {code for code in found if code.startswith("GRAD")}
