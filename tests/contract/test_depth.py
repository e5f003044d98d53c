"""How deep a document may be nested is said by the contract, not by the Python that reads it."""

import json
import shutil
from pathlib import Path

import pytest

import ckaudit
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.codec import MAX_DEPTH, is_deep
from ckaudit.run.read import read_run
from ckaudit.validate.manifest import check_manifest

RUN = Path(__file__).parents[2] / "fixtures" / "runs" / "healthy"


def nested(levels, bracket="[]"):
    opening, closing = ('{"a":', "}") if bracket == "{}" else "[]"
    return opening * levels + "1" + closing * levels


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_as_many_levels_as_allowed_are_not_deep_and_one_more_is(bracket):
    assert not is_deep(json.loads(nested(MAX_DEPTH, bracket)))
    assert is_deep(json.loads(nested(MAX_DEPTH + 1, bracket)))


def test_width_is_no_depth():
    assert not is_deep([[[]] * 5000, {str(number): [number] for number in range(5000)}])
    assert not is_deep(None)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 5000, 200_000])
@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_a_deep_field_is_refused_by_every_reader(levels, bracket):
    version = '{"schema_version":"ck.analysis.v1","step":1,"unknown":'
    checked = check_checkpoint((version + nested(levels, bracket) + "}").encode(), "checkpoint.json")
    assert [finding.code for finding in checked.findings] == ["SYN007"]
    config = '{"schema_version":"ck.run.v1","config":{"a":' + nested(levels, bracket) + "}}"
    assert [finding.code for finding in check_manifest(config.encode(), "run.json")[1]] == ["SYN007"]


@pytest.mark.parametrize("levels", [MAX_DEPTH - 20, MAX_DEPTH + 1, 3000])
def test_two_runs_with_deep_configurations_are_compared(tmp_path, levels):
    folders = []
    for number in (1, 2):
        folders.append(folder := tmp_path / str(number))
        shutil.copytree(RUN, folder)
        manifest = json.loads((folder / "run.json").read_text()) | {"config": {"k": "deep"}}
        text = json.dumps(manifest).replace('"deep"', nested(levels, "{}").replace("1", str(number)))
        (folder / "run.json").write_text(text)
    is_read = levels <= MAX_DEPTH
    run = read_run(folders[0])
    assert (run.manifest is not None) == is_read
    assert [finding.code for finding in run.findings] == ([] if is_read else ["SYN007"])
    assert ckaudit.diff(*folders).word
