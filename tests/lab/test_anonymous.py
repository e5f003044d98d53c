"""No verdict rests on what a real run would not have: names, a seed, a configuration."""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.report import Finding
from ckaudit.lab.drill.bundle import OWN, USER_FACTS, anonymous
from ckaudit.validate import validate

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
NAMES = sorted(path.parent.name for path in RUNS.glob("*/expected.toml"))


def verdicts(folder: Path) -> dict[str, Any]:
    """Return what counts of `triage` and `validate`: not the places, which are called otherwise."""
    report = triage(folder)
    return {
        "findings": sorted(map(of_finding, report.findings)),
        "violations": sorted(map(of_finding, (each for each in validate([folder]).findings if each.code != "MAN001"))),
        "causes": [each.cause for each in report.diagnoses],
        "severity": report.severity,
    }


def of_finding(finding: Finding) -> tuple[str, int, str, str]:
    return finding.code, -1 if finding.first_step is None else finding.first_step, finding.severity, str(finding.last_step)


def disguised(folder: Path, *, facts: set[str]) -> dict[str, Any]:
    """Return the verdicts on a copy of a run under random names."""
    rng = random.Random(folder.name)
    with TemporaryDirectory() as temporary:
        target = Path(temporary) / f"{rng.randrange(16**8):08x}"
        anonymous(folder, target, facts=facts, rng=rng)
        return verdicts(target)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_is_judged_by_what_any_run_has(name: str) -> None:
    whole, bare = verdicts(RUNS / name), disguised(RUNS / name, facts=OWN)
    assert disguised(RUNS / name, facts=OWN | USER_FACTS) == whole  # what the first loss says of what the model knew rests on it
    assert (bare["severity"], bare["causes"], bare["violations"]) == (whole["severity"], whole["causes"], whole["violations"])


@pytest.mark.torch
@pytest.mark.parametrize("name", ["no_shift", "percentile_levels", "ckpt_truncated"])
def test_a_run_of_the_lab_is_judged_by_what_any_run_has(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.lab.small import made, trained

    trained(made(name, onset=10 if name.startswith("ckpt") else 0), tmp_path / "run")
    assert disguised(tmp_path / "run", facts=OWN | USER_FACTS) == verdicts(tmp_path / "run")


def test_the_disguise_renames_tensors_everywhere_and_keeps_their_order(tmp_path: Path) -> None:
    names = anonymous(RUNS / "nan_batch", tmp_path / "x", facts=OWN, rng=random.Random(1))
    told = [json.loads((folder / "run.json").read_bytes()) for folder in (RUNS / "nan_batch", tmp_path / "x")]
    assert list(told[1]["tensors"]) == [names[name] for name in told[0]["tensors"]]
    assert [each["module"] for each in told[1]["tensors"].values()] == [each["module"] for each in told[0]["tensors"].values()]
    assert told[1].keys() <= OWN
    everything = b"".join(read_bytes(file, "") for file in (tmp_path / "x").glob("analysis*"))
    assert not [name for name in names if f'"{name}"'.encode() in everything]
