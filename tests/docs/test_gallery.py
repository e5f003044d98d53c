"""The gallery shows what an audit says of recordings of the lab, right or wrong."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ckaudit.causes import causes
from ckaudit.lab.specs import faults

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "fixtures" / "lab"


@pytest.fixture(scope="module")
def gallery(script):
    return script("gallery")


@pytest.fixture(scope="module")
def entries():
    parts = re.split(r"^### (\w+)$", (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def first_cause(entry):
    return re.search(r"\*\*First cause\.\*\* .*causes\.md#(\w+)\)", entry)


def test_each_fault_has_its_picture_its_verdict_and_its_mend(gallery, entries):
    assert list(entries) == [name for names in gallery.SHOWN.values() for name in names]
    assert len(entries) == 24
    for name, entry in entries.items():
        assert f'src="gallery/{name}.svg"' in entry
        assert "**Verdict.** " in entry
        truth = faults()[name].truth
        found = first_cause(entry)
        assert found is None or f"**Mend.** {causes()[found[1]].knob}" in entry or "**Mend.** " in entry
        assert found is not None or f"**Missed.** No cause is named. What was done is `{truth}`." in entry
        assert found is None or (found[1] == truth) == ("It is not what was done" not in entry)
    assert sum("It is not what was done" not in entry and "**Missed.**" not in entry for entry in entries.values()) >= 20


def test_pictures_are_two_runs_on_shared_axes_and_small_enough(gallery, entries):
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in gallery.PICTURES.glob("*.svg")}
    assert drawn.keys() == entries.keys()
    for name, picture in drawn.items():
        words = {text.text for text in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")}
        assert {"A healthy", f"B {name}"} <= words
    size = sum(map(len, drawn.values())) + (ROOT / "docs" / "gallery.md").stat().st_size
    assert size < gallery.MOST_BYTES


@pytest.mark.parametrize("name", ["lr_too_high", "nan_inject"])
def test_the_recordings_of_the_repository_give_the_same_cause(gallery, entries, name):
    entry, picture = gallery._entry(faults()[name], RECORDINGS)
    assert first_cause(entry)[1] == first_cause(entries[name])[1]
    assert ET.fromstring(picture).tag.endswith("svg")


def test_a_recording_that_is_missing_is_named_with_the_command_that_makes_it(gallery, tmp_path):
    with pytest.raises(SystemExit, match=r"healthy\.0\.tar\.zst is missing: ckaudit lab record --cache"):
        gallery.page(tmp_path)
