"""Each recorded pair as the reader sees it. `CKAUDIT_GOLDEN=1 pytest tests/diff` rewrites the files; read the diff."""

import json
import math
import os
from pathlib import Path

import pytest

from ckaudit.cli.run import run

PAIRS = Path(__file__).parents[2] / "fixtures" / "pairs"
GOLDEN = Path(__file__).parent / "golden"
ASKED = {
    "identical": ["base", "identical"],
    "replica": ["base", "replica"],
    "replica_known": ["base", "replica", "--noise", "replica_2"],
    "lr_doubled": ["base", "lr_doubled"],
    "frozen": ["base", "frozen"],
    "tokenizer": ["base", "tokenizer"],
    "optimizer_lost": ["base", "optimizer_lost"],
    "optimizer_lost_resume": ["optimizer_lost", "--resume"],
    "exact": ["base", "lr_doubled", "--exact"],
    "parity": ["base", "frozen", "--parity"],
    "checkpoints": ["base@500", "lr_doubled@500"],
    "many": ["base", "identical", "replica", "lr_doubled", "frozen", "tokenizer"],
}
SUFFIXES = {"terminal": "txt", "json": "json"}


def near(one, other):
    """Tell whether two documents are equal, floats to what machines may differ by."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(near, one, other))
    return one == other


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("kind", SUFFIXES)
def test_a_pair_reads_as_it_stands_on_file(name, kind, capfd, monkeypatch):
    monkeypatch.chdir(PAIRS)
    monkeypatch.setenv("COLUMNS", "100")
    run(["diff", *ASKED[name], "--format", kind])
    out, err = capfd.readouterr()
    assert err == ""
    path = GOLDEN / f"{name}.{SUFFIXES[kind]}"
    if os.environ.get("CKAUDIT_GOLDEN"):
        path.write_text(out, encoding="utf-8", newline="\n")
    kept = path.read_text(encoding="utf-8")
    assert near(json.loads(out), json.loads(kept)) if kind == "json" else out == kept


def test_no_golden_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.{suffix}" for name in ASKED for suffix in SUFFIXES.values()}
