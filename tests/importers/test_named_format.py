"""A format that the user names for a file of another one, or for one that holds nothing yet, is an error of ours for neither."""

from contextlib import suppress
from pathlib import Path

import pytest

from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import ImportOptions, format_key, import_runs, import_source, importers
from ckaudit.importers.names import resolve_columns
from tests.loops import for_each

FIXTURES = Path(__file__).parents[2] / "fixtures"
OTHERS = {
    "header.csv": b"step,loss,lr\n",
    "yolo.csv": b"   epoch,   train/box_loss,   train/cls_loss,   val/box_loss,   val/cls_loss,   lr/pg0\n",
    "table.csv": b"step,loss\n1,2.5\n2,2.25\n3,2.0\n",
    "train.log": b"step 1: loss 2.5\nstep 2: loss 2.25\n",
    "rows.jsonl": b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n',
    "object.json": b"{}",
    "list.json": b"[]",
    "nothing.txt": b"\n",
    "bytes.bin": bytes(range(256)),
}
HEADS = [path for path in sorted((FIXTURES / "real").rglob("*")) if path.suffix in (".csv", ".log", ".txt", ".json", ".jsonl")]


def read(path, name):
    with suppress(CkauditError):
        import_runs(path, import_options=ImportOptions(format=name))


@for_each("name", [format_key(importer) for importer in importers()])
@for_each("file", OTHERS)
def test_a_file_of_another_format(tmp_path, name, file):
    (tmp_path / file).write_bytes(OTHERS[file])
    read(tmp_path / file, name)


@for_each("name", [format_key(importer) for importer in importers()])
def test_an_empty_folder(tmp_path, name):
    read(tmp_path, name)


@pytest.mark.parametrize("lines", [1, 2, 3])
@for_each("path", HEADS)
def test_a_log_that_only_began(tmp_path, path, lines):
    short = tmp_path / path.name
    short.write_bytes(b"".join(line + b"\n" for line in path.read_bytes()[:100_000].split(b"\n")[:lines]))
    read(short, "")


def test_a_text_of_no_known_format_is_told_how_to_be_read(tmp_path):
    path = tmp_path / "own.log"
    long = "a_measure_whose_name_is_longer_than_what_a_sentence_shows_of_one"
    path.write_text("".join(f"step {step} {long}: {3 - step / 100} other: 5\n" for step in range(10, 90, 10)))
    with pytest.raises(UnreadableError) as caught:
        import_source(path)
    assert (
        f"as {long}, other. Where they name a step, `ckaudit import FILE --format keyvalue --map loss=NAME" in caught.value.hint
    )
    run = import_source(path, import_options=ImportOptions(format="keyvalue", columns={"loss": long}))
    assert [row["train_loss_raw"] for row in run.rows] == [3 - step / 100 for step in range(10, 90, 10)]
    path.write_text("nothing but words\n" * 5)
    with pytest.raises(UnreadableError) as caught:
        import_source(path)
    assert "Write its series to a CSV file" in caught.value.hint


def test_the_beginning_of_a_file_is_quoted_by_whole_characters(tmp_path):
    path = tmp_path / "own.log"
    path.write_text("a" + "█" * 60 + "\n")
    with pytest.raises(UnreadableError) as caught:
        import_source(path)
    assert str(caught.value).endswith(f"starts 'a{'█' * 39}'")


def test_no_empty_list_is_offered_and_names_to_copy_are_whole():
    with pytest.raises(UsageError) as caught:
        resolve_columns({"loss": "mine"}, [])
    assert caught.value.hint == ""
    long = "x" * 90
    with pytest.raises(UsageError) as caught:
        resolve_columns({"loss": "mine"}, [long])
    assert caught.value.hint == f"There is {long}."
