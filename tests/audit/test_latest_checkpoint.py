"""Triage says what the newest checkpoint contradicts itself in, and so what its writer does wrong."""

import json
import shutil
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.contract.contradictions import PERCENTILES_ARE_LEVELS
from ckaudit.contract.io.codec import encode, pack
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.checkpoint import PERCENTILE_LEVELS

HEALTHY = Path(__file__).parents[2] / "fixtures" / "runs" / "healthy"


@pytest.fixture
def levels(tmp_path: Path) -> tuple[Path, int, int]:
    """A copy of the healthy run whose newest checkpoint holds levels in two tensors; its step, and that before it."""
    run = shutil.copytree(HEALTHY, tmp_path / "run")
    files = sorted(run.glob("analysis_checkpoint_*"))
    document = json.loads(read_bytes(files[-1], files[-1].name))
    names = [name for name, each in document["weights"].items() if "percentiles" in each][:2]
    for name in names:
        document["weights"][name]["percentiles"] = [level / 100 for level in PERCENTILE_LEVELS]
    files[-1].write_bytes(pack(encode(document), files[-1].name[files[-1].name.index(".json") :]))
    return run, document["step"], json.loads(read_bytes(files[-2], files[-2].name))["step"]


def test_percentiles_that_are_their_levels_are_one_finding_with_its_cause(levels: tuple[Path, int, int]) -> None:
    run, newest, _ = levels
    report = triage(run)
    (found,) = [each for each in report.findings if each.code == PERCENTILES_ARE_LEVELS.code]
    assert found.first_step == newest
    assert len(found.also) == 1
    assert report.diagnoses[0].cause == "writer_wrote_levels"


def test_only_the_newest_until_the_step_is_looked_at(levels: tuple[Path, int, int]) -> None:
    run, newest, before = levels
    assert not [each for each in triage(run, step=before).findings if each.code.startswith("VAL")]
    assert [each for each in triage(run, step=newest).findings if each.code.startswith("VAL")]


def test_a_newest_checkpoint_that_cannot_be_read_is_left_to_the_reader(levels: tuple[Path, int, int]) -> None:
    run, newest, _ = levels
    (file,) = run.glob(f"analysis_checkpoint_step_*{newest}.*")
    file.write_bytes(file.read_bytes()[:100])
    codes = [each.code for each in triage(run).findings if each.file == file.name]
    assert len(codes) == 1
    assert not codes[0].startswith("VAL")
