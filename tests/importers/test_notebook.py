"""Jupyter notebooks: what their cells printed, and the tables that trainers show in them."""

import gzip
import json
import math
import time

import pytest

from ckaudit.audit import triage
from ckaudit.cli.run import run
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs
from tests.loops import for_each

PNG = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 99, "text/plain": ["<Figure>"]}, "metadata": {}}
INDEX_STYLE = "<style scoped>\n    .dataframe tbody tr th {\n        vertical-align: top;\n    }\n</style>\n"
PROGRESS = "<div>\n<progress value='1500' max='1500'></progress>\n [1500/1500 10:11, Epoch 5/5]\n</div>\n"
EVALUATION = "313/313 [==============================] - 1s 2ms/step - loss: 0.3512 - accuracy: 0.8812\nTest loss: 0.3512\n"


def notebook(*cells):
    """Return the text of a notebook as Jupyter writes it."""
    document = {"cells": list(cells), "metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False)


def code(count, *outputs):
    return {"cell_type": "code", "execution_count": count, "metadata": {}, "outputs": list(outputs), "source": ["fit()"]}


def text(words):
    return {"cell_type": "markdown", "metadata": {}, "source": [words]}


def stream(words, name="stdout"):
    return {"output_type": "stream", "name": name, "text": words.splitlines(keepends=True)}


def shown(html):
    data = {"text/html": html.splitlines(keepends=True), "text/plain": ["<IPython.core.display.HTML object>"]}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def table(head, *rows):
    """Return a table as the Hugging Face Trainer and fastai write it."""
    cells = ["".join(f"      <td>{cell}</td>\n" for cell in row) for row in rows]
    names = "".join(f"      <th>{name}</th>\n" for name in head)
    return (
        f'<table border="1" class="dataframe">\n  <thead>\n <tr style="text-align: left;">\n{names}    </tr>\n  </thead>\n'
        f"  <tbody>\n{''.join(f'    <tr>{chr(10)}{row}    </tr>{chr(10)}' for row in cells)}  </tbody>\n</table><p>"
    )


def frame(head, *rows):
    """Return a table as pandas writes a data frame, with its index before the columns."""
    lines = "".join(f"<tr><th>{at}</th>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for at, row in enumerate(rows))
    names = "".join(f"<th>{name}</th>" for name in ("", *head))
    return f'{INDEX_STYLE}<table border="1" class="dataframe"><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>'


def keras(losses):
    """Return what Keras 2 prints: bars that are written over, and the last version of each."""
    lines = []
    for epoch, loss in enumerate(losses, 1):
        bar = f"\r  32/1875 [>.....................] - ETA: 3s - loss: {loss + 1:.4f}" + "\b" * 60
        end = f"\r1875/1875 [=====================] - 5s 2ms/step - loss: {loss:.4f} - val_loss: {loss + 0.5:.4f}\n"
        lines.append(f"Epoch {epoch}/{len(losses)}\n{bar}{end}")
    return "".join(lines)


def keras3(losses):
    """Return what Keras 3 prints, in colours."""
    bar = "\x1b[1m1875/1875\x1b[0m \x1b[32m━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m4s\x1b[0m 2ms/step"
    return "".join(f"Epoch {epoch}/{len(losses)}\n{bar} - loss: {loss:.4f}\n" for epoch, loss in enumerate(losses, 1))


TRAINER = table(
    ["Epoch", "Training Loss", "Validation Loss", "Accuracy"],
    [1, "No log", "0.692000", "0.510000"],
    [2, "0.610000", "0.580000", "0.700000"],
    [3, "0.450000", "0.470000", "0.780000"],
    [4, "0.330000", "0.410000", "0.810000"],
)
FASTAI = table(
    ["epoch", "train_loss", "valid_loss", "error_rate", "time"],
    [0, "1.250000", "0.900000", "0.300000", "00:20"],
    [1, "0.750000", "0.600000", "0.200000", "00:21"],
    [2, "0.500000", "0.450000", "0.150000", "00:20"],
)
HEAD_ALONE = table(["epoch", "train_loss", "valid_loss", "time"], [0, "2.0", "1.5", "00:20"])


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


@pytest.fixture
def runs(tmp_path):
    """Import all runs of a notebook; keywords are columns by catalogue name."""

    def read(*cells, **columns):
        path = tmp_path / "train.ipynb"
        path.write_text(notebook(*cells), encoding="utf-8")
        return import_runs(path, import_options=ImportOptions(columns=columns))

    return read


@for_each("printed", [keras, keras3])
def test_printed_lines_are_read_as_the_log_that_they_are(runs, printed):
    cell = code(7, stream("2024 WARNING: no GPU\n", "stderr"), stream("Using CPU\n"), stream(printed([2.0, 1.5, 1.25, 1.125])))
    [run] = runs(text("# Digits"), code(1, stream("2.15.0\n")), cell, code(8, stream(EVALUATION)), code(9, PNG))
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.5, 3: 1.25, 4: 1.125}
    assert (run.name, run.source) == ("", "epoch text log")
    assert run.notes[0] == "read as Jupyter notebook: the printed lines of cell 7"
    assert run.notes[1].startswith("read as epoch text log: ")


def test_text_may_be_one_string_and_may_be_cut_anywhere(runs):
    words = keras([2.0, 1.5, 1.25, 1.125])
    pieces = [{"output_type": "stream", "name": "stdout", "text": words[at : at + 50]} for at in range(0, len(words), 50)]
    [run] = runs(code(1, *pieces))
    assert curve(run, "val_loss") == {1: 2.5, 2: 2.0, 3: 1.75, 4: 1.625}


def test_notebooks_of_other_programs_and_packed_ones_are_known(imported):
    cell = code(1, stream(keras([2.0, 1.5, 1.0])))
    colab = json.dumps({"nbformat": 4, "metadata": {"widgets": "w" * 100_000}, "cells": [cell]})
    packed = gzip.compress(notebook(cell).encode("utf-8-sig"))
    for data, name in ((colab, "train.ipynb"), (packed, "train.ipynb.gz")):
        assert curve(imported(data, name), "train_loss_raw") == {1: 2.0, 2: 1.5, 3: 1.0}


def test_bars_and_lines_of_two_streams_do_not_run_into_each_other(runs):
    bar = "\r100%|██████████| 50/50 [00:10<00:00,  4.9it/s]"
    outputs = [
        output
        for epoch, loss in enumerate([2.0, 1.5, 1.0], 1)
        for output in (stream(f"\r  0%|          | 0/50{bar}", "stderr"), stream(f"Epoch {epoch}: train loss {loss}\n"))
    ]
    [run] = runs(code(1, *outputs))
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.5, 3: 1.0}


def test_progress_bars_are_read_version_by_version(runs):
    versions = [f"\r {at}%|██        | {at}/100 [00:01<00:09,  9.5it/s, loss={3 - at / 50:.2f}]" for at in range(10, 101, 10)]
    [run] = runs(code(1, stream("".join(versions), "stderr")))
    assert run.source == "progress bars (tqdm)"
    assert curve(run, "train_loss_raw") == {at: pytest.approx(3 - at / 50) for at in range(10, 101, 10)}


def test_the_table_of_the_hugging_face_trainer(runs):
    result = {"output_type": "execute_result", "data": {"text/plain": ["TrainOutput(global_step=1500)"]}, "execution_count": 3}
    [run] = runs(code(3, stream("Some weights were not used\n", "stderr"), shown(PROGRESS + TRAINER), result))
    assert curve(run, "train_loss_raw") == {2: 0.61, 3: 0.45, 4: 0.33}
    assert curve(run, "val_loss") == {1: 0.692, 2: 0.58, 3: 0.47, 4: 0.41}
    assert curve(run, "microbench_score/accuracy")[4] == 0.81
    assert run.manifest.step_unit == "epoch"
    assert run.notes[:2] == ("read as Jupyter notebook: the table of cell 3", "read as HTML table: 4 rows")


def test_a_training_loss_that_evaluations_repeat_counts_once(runs):
    losses = ["No log", "2.100000", "2.100000", "1.400000", "1.400000", "1.100000", "1.100000"]
    rows = [[100 * at, loss, f"{2 / at:.6f}"] for at, loss in enumerate(losses, 1)]
    [run] = runs(code(1, shown(table(["Step", "Training Loss", "Validation Loss"], *rows))))
    assert curve(run, "train_loss_raw") == {200: 2.1, 400: 1.4, 600: 1.1}
    assert len(curve(run, "val_loss")) == 7
    assert any("evaluations between them repeat it" in note for note in run.notes)


def test_a_training_loss_that_comes_to_a_stand_is_left_as_it_is(runs):
    rows = [[at, f"{loss:.6f}"] for at, loss in enumerate([2.1, 1.4, 0.693147, 0.693147, 0.693147], 1)]
    [run] = runs(code(1, shown(table(["Step", "Training Loss"], *rows))))
    assert list(curve(run, "train_loss_raw").values()) == [2.1, 1.4, 0.693147, 0.693147, 0.693147]


def test_a_table_of_fastai(runs):
    [run] = runs(code(4, shown(HEAD_ALONE), shown(FASTAI)))
    assert curve(run, "train_loss_raw") == {1: 1.25, 2: 0.75, 3: 0.5}
    assert curve(run, "val_loss") == {1: 0.9, 2: 0.6, 3: 0.45}
    assert any("counts from 0" in note for note in run.notes)


def test_an_infinite_and_a_missing_loss_are_what_they_say(runs):
    rows = [[0, "1.0", "None"], [1, "nan", "0.5"], [2, "inf", "0.4"], [3, "nan", "0.4"]]
    [run] = runs(code(1, shown(table(["epoch", "train_loss", "valid_loss"], *rows))))
    losses = curve(run, "train_loss_raw")
    assert (losses[1], losses[3]) == (1.0, math.inf)
    assert math.isnan(losses[2])
    assert curve(run, "val_loss") == {2: 0.5, 3: 0.4, 4: 0.4}


def test_of_a_cell_that_prints_and_shows_what_tells_more_steps_counts(runs):
    lines = "".join(f"step {at}: loss {3 - at / 100:.2f}\n" for at in range(20, 101, 20))
    [run] = runs(code(1, stream(lines), shown(TRAINER)))
    assert curve(run, "train_loss_raw") == {20: 2.8, 40: 2.6, 60: 2.4, 80: 2.2, 100: 2.0}
    [run] = runs(code(1, stream(keras([1.0, 0.9, 0.8])), shown(TRAINER)))
    assert run.source == "HTML table"


def test_each_cell_with_a_training_is_a_run_under_its_execution_count(runs, tmp_path):
    cells = [code(4, stream(keras([2.0, 1.0, 0.5]))), text("Again"), code(9, stream(keras3([4.0, 3.0, 2.0, 1.0])))]
    assert [(run.name, len(run.table.steps)) for run in runs(*cells)] == [("cell 4", 3), ("cell 9", 4)]
    path = tmp_path / "train.ipynb"
    assert "the file holds 2 runs, and all were judged" in triage(path).notes[0]
    assert triage(path, import_options=ImportOptions(run="cell 9")).step == 4


@for_each("counts", [(None, 2), (3, 3)])
def test_cells_without_counts_of_their_own_are_counted_from_the_top(runs, counts):
    first, second = counts
    found = runs(text("A"), code(first, stream(keras([2.0, 1.0, 0.5]))), code(second, stream(keras([4.0, 3.0, 2.0]))))
    assert [run.name for run in found] == ["cell 2", "cell 3"]
    assert found[0].notes[0] == "read as Jupyter notebook: the printed lines of cell 2, counted from the top"


def test_several_tables_and_several_starts_in_one_cell_are_runs(runs):
    assert [run.name for run in runs(code(4, shown(FASTAI), shown(FASTAI)))] == ["table 1", "table 2"]
    twice = code(5, stream(keras([2.0, 1.5, 1.0]) + keras([1.9, 1.4, 0.9])))
    names = ["cell 4: table 1", "cell 4: table 2", "cell 5: run 1", "cell 5: run 2"]
    assert [run.name for run in runs(code(4, shown(FASTAI), shown(FASTAI)), twice)] == names


def test_the_error_that_ended_a_cell_is_one_of_the_run(runs, tmp_path):
    lines = "".join(f"iter {at}: loss {3 - at / 10:.2f}, time 350.00ms, mfu 12.00%\n" for at in range(20))
    error = {"output_type": "error", "ename": "OutOfMemoryError", "evalue": "CUDA out of memory.", "traceback": ["\x1b[0;31m--"]}
    [run] = runs(code(4, stream(lines), error))
    assert curve(run, "error_event_rate/oom")[20] == 1
    assert ("SYS008", 20) in {(each.code, each.first_step) for each in triage(tmp_path / "train.ipynb").findings}


def test_columns_are_taken_by_the_cells_that_have_them(runs):
    custom = table(["Epoch", "Training Loss", "Smooth"], [1, 2.0, 2.5], [2, 1.0, 1.5], [3, 0.5, 1.0])
    first, second = runs(code(1, shown(custom)), code(2, shown(FASTAI)), train_loss_raw="Smooth")
    assert curve(first, "train_loss_raw") == {1: 2.5, 2: 1.5, 3: 1.0}
    assert curve(second, "train_loss_raw") == {1: 1.25, 2: 0.75, 3: 0.5}
    assert second.notes[1].startswith("cell 2 was read without --map: train_loss_raw is to come from 'Smooth'")
    with pytest.raises(UsageError, match="'nll', which is not there"):
        runs(code(2, shown(FASTAI)), train_loss_raw="nll")


MODELS = ["Model", "Epoch", "Train Loss", "Val Loss"]
RESULTS = [["resnet18", 1, 0.5, 0.6], ["resnet50", 2, 0.4, 0.5], ["vit", 3, 0.3, 0.4], ["swin", 4, 0.3, 0.4]]
NO_TRAINING = {
    "nothing": [],
    "outputs cleared": [code(None), text("Fit the model")],
    "a figure": [code(1, PNG)],
    "an evaluation": [code(1, stream(EVALUATION))],
    "two epochs": [code(1, stream(keras([2.0, 1.0])))],
    "pairs of numbers": [code(1, stream("".join(f"{at} {at * at}\n" for at in range(30))))],
    "results of models": [code(1, shown(table(MODELS, *RESULTS)))],
    "printed results": [code(1, stream("\n".join("   ".join(map(str, row)) for row in ([MODELS[0], *MODELS[2:]], *RESULTS))))],
    "results of more epochs": [code(1, shown(table(MODELS[1:], [10, 0.5, 0.6], [5, 0.4, 0.5], [20, 0.3, 0.4])))],
    "the head of a history": [code(1, shown(frame(["loss", "val_loss"], [2.0, 2.1], [1.5, 1.6], [1.0, 1.2])))],
    "a frame of a log": [code(1, shown(frame(["epoch", "loss"], [1, 2.0], [2, 1.5], [3, 1.0])))],
    "a frame without a loss": [code(1, shown(table(["Step", "Price"], [1, 2.0], [2, 1.5], [3, 1.0])))],
    "a printed CSV file": [code(1, stream("epoch,minutes\n1,2\n2,3\n3,4\n"))],
}


@for_each("cells", NO_TRAINING.values())
def test_what_is_no_training_is_not_taken_for_one(runs, tmp_path, cells):
    with pytest.raises(UnreadableError, match=r"train\.ipynb is no log that is known"):
        runs(*cells)
    with pytest.raises(UnreadableError, match=r"train\.ipynb is a Jupyter notebook without a training: expected .* 3 steps"):
        import_runs(tmp_path / "train.ipynb", import_options=ImportOptions(format="notebook"))


HOSTILE = {
    "cut off": notebook(code(1, stream(keras([2.0, 1.0, 0.5]))))[:-40],
    "deep": '{"nbformat": 4, "cells": ' + "[" * 100_000,
    "deep where nothing is read": '{"nbformat": 4, "cells": [], "metadata": ' + "[" * 100_000,
    "cells are none": '{"nbformat": 4, "cells": {"outputs": []}}',
    "a cell is none": '{"nbformat": 4, "cells": [1, null]}',
    "outputs are none": '{"nbformat": 4, "cells": [{"outputs": 7}]}',
    "text is a number": notebook(code(1, {"output_type": "stream", "name": "stdout", "text": 1.5})),
    "text is an object": notebook(code(1, {"output_type": "stream", "name": "stdout", "text": {"a": "loss"}})),
    "texts are numbers": notebook(code(1, {"output_type": "stream", "name": "stdout", "text": ["loss", 1]})),
    "data is a list": notebook(code(1, {"output_type": "display_data", "data": ["text/html"]})),
    "a count in words": notebook(code("three", stream(keras([2.0, 1.0, 0.5])))),
    "half a character": '{"nbformat": 4, "cells": [{"outputs": [{"output_type": "stream", "text": "\\ud83d"}]}]}',
    "no text": '{"nbformat": 4, "cells": [{"outputs": [{"output_type": "stream", "text": "\xff"}]}]}',
    "of nbformat 3": '{"nbformat": 3, "worksheets": [{"cells": []}]}',
    "many objects": '{"nbformat": 4, "cells": [' + "{}," * 1_000_001 + "{}]}",
}


@for_each("document", HOSTILE.values())
def test_what_cannot_be_a_notebook_is_refused_in_words(tmp_path, document):
    path = tmp_path / "train.ipynb"
    path.write_bytes(document.encode("latin-1", errors="ignore"))
    with pytest.raises(UnreadableError, match=r"train\.ipynb is no log that is known"):
        import_runs(path)
    with pytest.raises(UnreadableError, match=r"train\.ipynb (is no Jupyter notebook that can be read: expected|holds)"):
        import_runs(path, import_options=ImportOptions(format="notebook"))


def test_tags_and_escapes_in_a_table_are_text(runs, tmp_path, capfd):
    rows = [[at, f"<b>{2 / at}</b>", "&lt;td&gt;", "a\tb\n&quot;c", "\x1b[31mred\0"] for at in range(1, 5)]
    head = ["Step", "<i>Loss</i>", "x", '"y', "\x1b[31m"]
    broken = [["<![y[", *rows[0][1:]], [f"&#{'9' * 5000};", *rows[0][1:]]]
    [found] = runs(code(1, shown("<![x[" + table(head, *rows, *broken))))
    assert curve(found, "train_loss_raw") == {1: 2.0, 2: 1.0, 3: pytest.approx(2 / 3), 4: 0.5}
    assert run(["triage", str(tmp_path / "train.ipynb")]) == 0
    assert "\x1b" not in "".join(capfd.readouterr())


@for_each("piece", ["<a ", "<!--", "<td a='", "<![CDATA[", "</", "&#"])
def test_tags_that_never_end_take_no_time(runs, piece):
    begun = time.monotonic()
    with pytest.raises(UnreadableError):
        runs(code(1, shown("<table><tr><th>Step</th><th>Loss</th></tr><tr><td>1</td><td>" + piece * 100_000)))
    assert time.monotonic() - begun < 5
