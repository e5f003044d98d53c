"""No valid run breaks a command, whatever its values are; `tests/fuzz/long.py` asks for longer."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.commands import QUICK, ask
from tests.fuzz.valid_runs import Plan, as_document, plans, write

SETTINGS = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

# Each of them broke a command once; all that follows from a plan may change with the contract.
FOUND = (
    Plan(815398389, 5, 6, 10**12, 1000, 13, manifest=False, words=True),
    Plan(2355095800, 30, 6, 10, 1000, 12, manifest=True, words=True),
    Plan(2785313879, 30, 6, 10, 1000, 21, manifest=True, words=False),
    Plan(2337446730, 12, 6, 10**12, 1000, 19, manifest=True, words=True),
    Plan(2045921456, 2, 0, 1, 1000, 13, manifest=False, words=False),
    Plan(2440968470, 0, 2, 1, 0, 1, manifest=True, words=False),
    Plan(294618761, 2, 6, 10**12, 1, 4, manifest=True, words=True),
    Plan(1845127, 60, 0, 1, 1000, 16, manifest=False, words=False),
    Plan(3331189597, 1, 6, 10, 1, 2, manifest=True, words=False),
    Plan(603301975, 0, 6, 1, 1000, 13, manifest=True, words=True),
    Plan(2608976840, 60, 0, 1, 1000, 14, manifest=False, words=True),
    Plan(1163159193, 12, 6, 10**12, 1000, 7, manifest=True, words=True),
    Plan(3965714756, 5000, 2, 1, 0, 22, manifest=False, words=False),
    Plan(1430569850, 2, 1, 10**12, 1000, 5, manifest=False, words=False),
    Plan(2126063587, 200, 6, 10, 0, 14, manifest=False, words=True),
    Plan(4266943170, 3, 6, 1, 0, 20, manifest=False, words=True),
    Plan(2410806744, 60, 6, 10**12, 1, 24, manifest=True, words=False),
    Plan(3446486402, 1, 0, 1, 1, 17, manifest=True, words=True),
    Plan(387730239, 60, 6, 10**12, 1, 14, manifest=True, words=True),
    Plan(3109308002, 3, 2, 1, 1, 11, manifest=False, words=False),
    Plan(361845963, 200, 6, 1, 0, 7, manifest=False, words=False),
)


def grown(folder: Path, name: str, plan: Plan) -> Path:
    run = folder / name
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    write(plan, run)
    for document in run.glob("*.json"):
        as_document(document)
    return run


def check(folder: Path, plan: Plan, other: Plan, commands=QUICK) -> None:
    places = {"RUN": grown(folder, "run", plan), "OTHER": grown(folder, "other", other), "OUT": folder}
    assert [wrong for words in commands if (wrong := ask(words, places))] == []


@given(plan=plans(30), other=plans(30))
@SETTINGS
def test_no_valid_run_breaks_a_command(tmp_path_factory, plan, other):
    check(tmp_path_factory.mktemp("fuzz"), plan, other)


@pytest.mark.parametrize("plan", FOUND)
def test_what_broke_a_command_once(tmp_path, plan):
    check(tmp_path, plan, FOUND[0], [QUICK[0], QUICK[2], QUICK[6], ("report", "RUN", "-o", "OUT/report.html")])
