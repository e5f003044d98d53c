"""The table that spaCy prints while it trains."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.importers import Imported, import_runs

Import = Callable[..., Imported]
HEAD = """[i] Pipeline: ['tok2vec', 'ner']
[i] Initial learn rate: 0.001
E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE
---  ------  ------------  --------  ------  ------  ------  ------
"""
SEVERAL = """E    #       LOSS TOK2VEC  LOSS TAGGER  LOSS NER  TAG_ACC  ENTS_F  SCORE
---  ------  ------------  -----------  --------  -------  ------  ------
  0       0          0.00        81.12     20.00    15.97    0.00    0.16
  0     200        275.80      1200.00    800.00    53.77   20.00    0.54
  1     300        100.00       400.00    100.00    60.00   30.00    0.60
"""


def table(losses: list[float], scores: list[float]) -> str:
    rows = zip(range(len(losses)), losses, scores, strict=True)
    lines = [
        f"{n // 3:>3}  {200 * n:>6}  {100.0:>12.2f}  {loss:>8.2f}   19.02   19.02   19.02  {score:>6.2f}"
        for n, loss, score in rows
    ]
    return HEAD + "\n".join([*lines, "✔ Saved pipeline to output directory", "output/model-last", ""])


def test_sums_become_means_over_the_updates_since_the_row_before(imported: Import) -> None:
    run = imported(table([40.0, 1900.0, 1500.0], [0.0, 0.19, 0.34]), "spacy.log")
    assert run.source == "spaCy table"
    assert [row["step"] for row in run.rows] == [1, 201, 401]
    assert [row["train_loss_raw"] for row in run.rows] == [40.0, 9.5, 7.5]
    assert [row["microbench_score/score"] for row in run.rows] == [0.0, 0.19, 0.34]
    assert any("the mean of LOSS NER over the updates" in note for note in run.notes)
    assert any("left out" in note and "LOSS TOK2VEC, ENTS_F" in note for note in run.notes)


def test_losses_of_several_components_are_summed(imported: Import) -> None:
    run = imported(SEVERAL, "spacy.log")
    assert [row["train_loss_raw"] for row in run.rows] == [pytest.approx(101.12), 10.0, 5.0]
    assert any("the mean of the sum of LOSS TAGGER, LOSS NER" in note for note in run.notes)


def test_a_row_that_is_cut_off_is_left_out(imported: Import) -> None:
    text = table([40.0, 1900.0, 1500.0], [0.0, 0.19, 0.34]).partition("✔")[0]
    assert [row["step"] for row in imported(text[:-30], "spacy.log").rows] == [1, 201]


def test_a_loss_that_explodes_is_found(tmp_path: Path) -> None:
    path = tmp_path / "spacy.log"
    path.write_text(table([40.0, *(1900.0 * 0.9**n for n in range(12)), *(9000.0 * 2**n for n in range(18))], [0.5] * 31))
    assert triage(path).severity == "sev1"


def test_a_table_that_begins_again_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "spacy.log"
    path.write_text(table([40.0, 1900.0, 1500.0], [0.1] * 3) + table([30.0, 1000.0], [0.2] * 2))
    runs = import_runs(path)
    assert [[row["train_loss_raw"] for row in run.rows] for run in runs] == [[40.0, 9.5, 7.5], [30.0, 5.0]]
