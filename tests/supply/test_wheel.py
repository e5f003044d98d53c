"""A wheel is the same in every byte whoever builds it, and holds what it should."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]
TIME = 1_700_000_000  # 2023-11-14 22:13:20 UTC


def built(folder, kind, *, zone, mask):
    """Build in an environment of its own zone of time and mask of modes."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(TIME), "TZ": zone, "PYTHONHASHSEED": zone[-1]}
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, umask=mask)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return [
        built(tmp_path_factory.mktemp("wheel"), "wheel", zone=zone, mask=mask)
        for zone, mask in [("UTC0", 0o022), ("ABC-7", 0o077)]
    ]


def test_two_builds_are_equal_in_every_byte(wheels):
    one, other = wheels
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_two_source_distributions_are_too(tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    one, other = (built(folder, "sdist", zone=zone, mask=0o022) for folder, zone in zip(folders, ["UTC0", "ABC-7"], strict=True))
    assert one.read_bytes() == other.read_bytes()


def test_it_says_that_it_is_typed_and_brings_the_schemas_and_nothing_of_the_tests(wheels):
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
        assert {info.date_time for info in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    assert "ckaudit/py.typed" in names
    assert "ckaudit/schemas/ck.analysis.v1.schema.json" in names
    assert {name.split("/")[0] for name in names} == {"ckaudit", "ckaudit-0.1.0.dist-info"}
    assert not [name for name in names if name.endswith(".pyc")]
