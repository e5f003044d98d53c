"""Files that broke a reader once, and a short search for more; `tests/fuzz/readers.py` searches for longer."""

import random

import pytest

from tests.fuzz.corpus import seeds
from tests.fuzz.readers import CRASHERS, broken_by, mutated, targets
from tests.loops import for_each

KEPT = sorted(CRASHERS.glob("*-*"))


@for_each("path", KEPT or [None])
def test_what_broke_a_reader_once(tmp_path, path):
    if path is not None:
        assert broken_by(targets()[path.name.rpartition("-")[0]], path.read_bytes(), tmp_path) == ""


@pytest.mark.parametrize("name", ["contract", "auto", "run.json", "model.safetensors", "model.pt"])
def test_mutated_files_are_read_or_refused(tmp_path, name):
    source, corpus = random.Random(name), seeds(name)
    for _ in range(60):
        data = mutated(source.choice(corpus), source)
        assert broken_by(targets()[name], data, tmp_path) == "", data
