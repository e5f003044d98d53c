"""Whatever finite numbers somebody logged, every command ends with a verdict: no traceback, no warning, no broken check.

Warnings are errors here, as in all tests: one from numpy's arithmetic would be a bug line.
"""

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ckaudit.cli.run import run
from ckaudit.metrics import metrics
from ckaudit.watch.announcer import ClockReading
from ckaudit.watch.watcher import Watcher

EVERY_FIELD = json.loads((Path(__file__).parents[2] / "fixtures/checkpoints/valid/every_field.json").read_text())
NAMES = sorted({name for each in metrics().values() for name in each.reads if "." not in name and "*" not in name})
FIXED = frozenset({"step", "session", "rank", "event_step", "shape", "numel", "count", "keys", "counts", "steps"})

ODD = st.sampled_from([1e308, -1e308, 1e-320, -1e-320, 5e-324, 0.0, -0.0, 1e-9, -0.01, 0.02, -3, 1e154, 2**62, 10**300, 10**400])
ANY = ODD | st.floats(allow_nan=False, allow_infinity=False)
CROSSING = st.sampled_from([0.02, -0.01, 1e-9, -3.0, 0.0, -1e-300, 1e300])


@st.composite
def columns(draw):
    """Draw curves by catalogue name: any numbers, or numbers around zero, or the same one over and over."""
    length = draw(st.sampled_from([1, 2, 5, 12, 40]))
    names = {"train_loss_raw", *draw(st.lists(st.sampled_from([*NAMES, "val_loss", "grad_global_norm"]), max_size=25))}
    kinds = st.sampled_from([ANY, CROSSING, ODD])

    def curve():
        if draw(st.booleans()):
            return [draw(ANY)] * length
        return draw(st.lists(draw(kinds), min_size=length, max_size=length))

    return {name: curve() for name in sorted(names)}


@st.composite
def checkpoints(draw):
    """Draw checkpoints with every field, some of whose numbers are any others."""
    odd = draw(st.lists(ANY.map(float_or_huge), min_size=1, max_size=6))
    every = draw(st.integers(1, 9))
    turn = iter(range(10**9))

    def changed(node, key=""):
        if isinstance(node, dict):
            return {name: changed(part, name) for name, part in node.items()}
        if isinstance(node, list):
            return [changed(part, key) for part in node]
        number = next(turn)
        if key in FIXED or isinstance(node, bool) or not isinstance(node, float) or number % every:
            return node
        value = odd[number % len(odd)]
        return abs(value) if node >= 0 else value

    return [changed(EVERY_FIELD) | {"step": 100 * place} for place in range(1, draw(st.integers(1, 4)) + 1)]


def float_or_huge(value):
    return value if abs(value) > 1e308 else float(value)


def written(folder, curves, files=()):
    folder.mkdir()
    length = len(next(iter(curves.values())))
    rows = [
        {"step": 10 * row + 10, "time": 1.7e9 + row, **{name: each[row] for name, each in curves.items()}}
        for row in range(length)
    ]
    (folder / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for document in files:
        document.pop("event_step", None)
        (folder / f"analysis_checkpoint_step_{document['step']:08d}.json").write_text(json.dumps(document))
    return str(folder)


def ended(capsysbinary, *arguments):
    """Run a command; it must end with a verdict, and say nothing of a bug. Returns what it wrote."""
    code = run([*arguments])
    told = capsysbinary.readouterr()
    assert code in (0, 1, 2), arguments
    assert b"bug in ckaudit" not in told.err, told.err.decode()
    assert b"Warning" not in told.err, told.err.decode()
    return told.out


def whole(text):
    """Return a JSON document, in which no number may be NaN or infinite, and no check may have broken."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    document = json.loads(text, parse_constant=refuse) if text else {}
    assert [each for each in document.get("checks", ()) if each["outcome"] == "error"] == []
    assert [each for each in document.get("missing", ()) if each["reason"] == "broke"] == []
    return document


OPTIONS = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture, *HealthCheck]
)


@OPTIONS
@given(curves=columns(), files=st.just([]) | checkpoints())
@example(curves={"train_loss_raw": [1e308] * 12}, files=[])  # a sum of two overflows
def test_any_numbers_of_one_run_end_in_a_verdict(capsysbinary, curves, files):
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "run", curves, files)
        whole(ended(capsysbinary, "triage", path, "--no-config", "-f", "json", "--questions", "all"))
        whole(ended(capsysbinary, "metrics", path, "-f", "json"))
        ended(capsysbinary, "triage", path, "--no-config")
        ended(capsysbinary, "metrics", path)
        ended(capsysbinary, "report", path, "--no-config", "-o", str(Path(folder) / "report.html"))
        ended(capsysbinary, "validate", path, "--no-config")
        watcher = Watcher(Path(path))
        for now in (0.0, 100.0):
            assert [each for each in watcher.poll(ClockReading(now, now)) if each.event == "error"] == []
        watcher.vitals.gauges(None)


@OPTIONS
@given(
    one=columns(),
    other=columns(),
    files=st.just([]) | checkpoints(),
    others=st.just([]) | checkpoints(),
    ways=st.permutations([[], ["--align", "loss"], ["--align", "tokens"], ["--exact"], ["--parity"]]),
)
def test_any_numbers_of_two_runs_are_compared(capsysbinary, one, other, files, others, ways):
    with tempfile.TemporaryDirectory() as folder:
        paths = [written(Path(folder) / "a", one, files), written(Path(folder) / "b", other, others)]
        for options in ways[:2]:
            whole(ended(capsysbinary, "diff", *paths, *options, "-f", "json"))
        ended(capsysbinary, "diff", *paths)
        whole(ended(capsysbinary, "gate", paths[0], "--against", paths[1], "-f", "json", "--no-config"))
        ended(capsysbinary, "report", *paths, "--no-config", "-o", str(Path(folder) / "report.html"))


def test_a_loss_that_explodes_to_the_end_of_all_floats_is_found(tmp_path, capsysbinary):
    path = written(tmp_path / "run", {"train_loss_raw": [*[3.0 - row / 40 for row in range(40)], *[1e308] * 20]})
    report = whole(ended(capsysbinary, "triage", path, "--no-config", "-f", "json"))
    assert report["severity"] in ("sev0", "sev1")


def test_a_loss_of_reinforcement_learning_that_crosses_zero_is_no_illness(tmp_path, capsysbinary):
    values = [[0.02, -0.01, 1e-9, -0.03, 0.0][row * 7 % 5] for row in range(100)]
    path = written(tmp_path / "run", {"train_loss_raw": values, "learning_rate": [1e-6] * 100})
    report = whole(ended(capsysbinary, "triage", path, "--no-config", "-f", "json"))
    assert [each["code"] for each in report["findings"] if each["severity"] != "note"] == []
