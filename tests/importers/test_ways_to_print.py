"""Lines that training loops of one's own print: where the step, the epoch and the evaluation stand in them."""

import math
from collections.abc import Callable

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported

Import = Callable[..., Imported]


def curve(run: Imported, name: str) -> dict[int, float]:
    """Return what a run holds under a name, by step."""
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


@pytest.mark.parametrize(
    "line",
    [
        "step {:,} loss {}",
        "Step {:,}/20,000 - loss: {}",
        "[step {:,}] loss={}",
        "step {:,}, loss {}",
        "{:,}/20,000 train_loss: {}",
        "Loss at step {:,}: {}",
    ],
)
def test_a_step_may_have_thousands_separators(imported: Import, line: str) -> None:
    steps = range(500, 3000, 500)
    run = imported("".join(line.format(step, 9 - step / 1000) + "\n" for step in steps), "train.log")
    assert curve(run, "train_loss_raw") == {step: 9 - step / 1000 for step in steps}


@pytest.mark.parametrize(
    "line",
    [
        "eval at step {}: loss {}",
        "Evaluation, step {}: loss {}",
        "val step {} loss={}",
        "[eval] step {} loss={}",
        "step {} | eval | loss {}",
        "step {} validation: loss {}",
        "step {} | test | loss {}",
    ],
)
@pytest.mark.parametrize("training", ["step {}: loss {}", "[train] step {} loss={}", "train step {} loss={}"])
def test_the_loss_of_a_line_that_speaks_of_an_evaluation_is_held_out(imported: Import, line: str, training: str) -> None:
    text = "".join(f"{training.format(step, 5 - step / 10)}\n{line.format(step, 7 - step / 10)}\n" for step in range(1, 9))
    run = imported(text, "train.log")
    assert curve(run, "train_loss_raw") == {step: 5 - step / 10 for step in range(1, 9)}
    assert curve(run, "val_loss") == {step: 7 - step / 10 for step in range(1, 9)}


def test_equally_long_words_in_brackets_are_told_apart(imported: Import) -> None:
    text = "".join(f"[train] step {n} loss {5 - n}\n[valid] step {n} loss {6 - n}\n" for n in range(1, 4))
    run = imported(text, "train.log")
    assert curve(run, "train_loss_raw") == {1: 4, 2: 3, 3: 2}
    assert curve(run, "val_loss") == {1: 5, 2: 4, 3: 3}


@pytest.mark.parametrize(
    "line",
    [
        "[test] step {}: loss {}",
        "eval=False step {}: loss {}",
        "[project.eval.loop] step {}: loss {}",
        "step {}: last eval at 100, loss {}",
        "step {}: eval: none, loss {}",
        "step {}, val_acc 0.5, loss {}",
        "step {} | valid tokens: 5120 | loss {}",
        "step {} | eval time 3.2s | loss {}",
    ],
)
def test_a_word_of_evaluation_elsewhere_leaves_the_loss_that_of_training(imported: Import, line: str) -> None:
    run = imported("".join(line.format(step, 5 - step / 10) + "\n" for step in range(1, 6)), "train.log")
    assert curve(run, "train_loss_raw") == {step: 5 - step / 10 for step in range(1, 6)}


@pytest.mark.parametrize("line", ["loss: {1} | step: {0} | lr: 0.001", "train loss {1} at step {0}, lr 0.001"])
def test_values_before_the_step_are_read_beside_those_behind_it(imported: Import, line: str) -> None:
    run = imported("".join(line.format(step, 5 - step / 10) + "\n" for step in range(1, 6)), "train.log")
    assert curve(run, "train_loss_raw") == {step: 5 - step / 10 for step in range(1, 6)}
    assert set(curve(run, "learning_rate").values()) == {0.001}


@pytest.mark.parametrize(
    "line",
    ["train_loss={1} epoch={0} val_loss={2}", "Loss: {1}, Epoch: {0}, val loss: {2}", "val_loss {2} train loss {1} epoch {0}"],
)
def test_values_before_the_epoch_are_read_beside_those_behind_it(imported: Import, line: str) -> None:
    run = imported("".join(line.format(epoch, 5 - epoch, 6 - epoch) + "\n" for epoch in range(1, 5)), "train.log")
    assert curve(run, "train_loss_raw") == {epoch: 5 - epoch for epoch in range(1, 5)}
    assert curve(run, "val_loss") == {epoch: 6 - epoch for epoch in range(1, 5)}


def test_the_best_loss_so_far_is_not_that_of_the_step_named_behind_it(imported: Import) -> None:
    text = "".join(f"step {n} loss {5 - n} val_loss {6 - n}\n" for n in range(1, 5)) + "Best val_loss: 0.5 at step 2, lr 0.1\n"
    assert curve(imported(text, "train.log"), "val_loss") == {1: 5, 2: 4, 3: 3, 4: 2}
    text = "".join(f"epoch {n} loss {5 - n} val_loss {6 - n}\n" for n in range(1, 5)) + "Best val_loss: 0.5 at epoch 2, lr 0.1\n"
    assert curve(imported(text, "train.log"), "val_loss") == {1: 5, 2: 4, 3: 3, 4: 2}


@pytest.mark.parametrize("word", ["Infinity", "-Infinity", "nan(ind)", "-nan(ind)", "1.#QNAN", "-1.#IND", "1.#INF00"])
@pytest.mark.parametrize("line", ["step {}: loss {}", "epoch {} loss {}", "loss = {1}, step = {0}"])
def test_a_loss_that_is_not_finite_is_read_however_it_is_printed(imported: Import, word: str, line: str) -> None:
    losses = ["2.5", "2.4", "2.3", word, word]
    run = imported("".join(line.format(step, loss) + "\n" for step, loss in enumerate(losses, 1)), "train.log")
    values = curve(run, "train_loss_raw")
    assert [values[1], values[2], values[3]] == [2.5, 2.4, 2.3]
    assert len(values) == 5
    assert not any(math.isfinite(values[step]) for step in (4, 5))


def test_a_decimal_comma_is_not_read_as_a_whole_number(imported: Import) -> None:
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported("".join(f"step {step}: loss 0,{9000 - step}\n" for step in range(1, 9)), "train.log")


def test_the_batches_of_a_language_model_of_the_pytorch_examples_are_not_its_milliseconds(imported: Import) -> None:
    text = "".join(
        f"| epoch {epoch:3d} | {batch:5d}/ 2983 batches | lr 20.00 | ms/batch 36.51 | loss {9 - epoch - batch / 1000:5.2f} |\n"
        for epoch in (1, 2)
        for batch in range(200, 2983, 200)
    )
    run = imported(text, "train.log")
    assert list(curve(run, "train_loss_raw"))[:2] == [200, 400]
    assert list(curve(run, "train_loss_raw"))[14] == 2983 + 200
    assert len(curve(run, "train_loss_raw")) == 28


def test_a_unit_of_another_quantity_leaves_a_value_out_and_a_note_says_so(imported: Import) -> None:
    run = imported("".join(f"step {step} loss {5 - step}nats val_loss {6 - step}GB\n" for step in range(1, 5)), "train.log")
    assert curve(run, "train_loss_raw") == {1: 4, 2: 3, 3: 2, 4: 1}
    assert not curve(run, "val_loss")
    assert "left out, because of their units: val_loss [gb]" in [note.lower() for note in run.notes]


def test_a_name_that_was_left_out_is_told_once(imported: Import) -> None:
    lines = (
        f"Train Epoch: {n} [34%]\n[{n * 100}, 9.9e-05]\nloss_disc={4 - n / 9:.3f}, loss_gen=3.1, loss_mel=2.1\n"
        for n in range(1, 9)
    )
    note = next(note for note in imported("".join(lines), "train.log").notes if note.startswith("left out"))
    assert note.partition(";")[0].count("loss_mel") == 1


def test_scores_of_training_and_of_an_evaluation_are_told_apart(imported: Import) -> None:
    text = "".join(
        f"train step {n}: loss {5 - n}, acc {n / 10}\neval step {n}: loss {6 - n}, acc {n / 20}\n" for n in range(1, 5)
    )
    run = imported(text, "train.log")
    assert curve(run, "microbench_score/acc") == {n: n / 10 for n in range(1, 5)}
    assert curve(run, "microbench_score/val_acc") == {n: n / 20 for n in range(1, 5)}


@pytest.mark.parametrize(
    "line",
    [
        "Epoche {n}: Verlust: {train}, Validierungsverlust: {val}",
        "Époque {n} : perte = {train}, perte de validation = {val}",
        "Época {n}/3 - pérdida: {train} - pérdida de validación: {val}",
        "Época {n}, perda: {train}, perda de validação: {val}",
        "Эпоха {n}/3 - потери: {train} - вал. потери: {val}",
        "第{n}轮 训练损失: {train} 验证损失: {val}",
        "エポック {n}: 損失 {train} 検証損失 {val}",
        "에폭 {n} 손실: {train} 검증 손실: {val}",
        "Epok {n} - kayıp: {train} - doğrulama kaybı: {val}",  # noqa: RUF001  letters of Turkish
    ],
)
def test_lines_of_other_languages(line: str, imported: Import) -> None:
    run = imported("".join(line.format(n=n, train=2.0 / n, val=3.0 / n) + "\n" for n in (1, 2, 3, 4)), "train.log")
    assert [row["train_loss_raw"] for row in run.rows if "train_loss_raw" in row] == [2.0, 1.0, 2.0 / 3, 0.5]
    assert [row["val_loss"] for row in run.rows if "val_loss" in row] == [3.0, 1.5, 1.0, 0.75]
    assert line.startswith("第") or run.notes[0].endswith("were translated to English")


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {} loss: tf.Tensor({}, shape=(), dtype=float32)",
        "Epoch {} loss: tensor({}, device='cuda:0', grad_fn=<NllLossBackward>)",
        "epoch {} loss [array({}, dtype=float32)]",
        "('Epoch', {}, 'loss', {})",
        "('Epoch : ', {}, 'loss : ', {})",
    ],
)
def test_objects_and_tuples_that_were_printed_as_they_are(line: str, imported: Import) -> None:
    losses = [2.5, 1.25, 0.75, 0.5, 0.4, 0.3]
    run = imported("".join(line.format(place, loss) + "\n" for place, loss in enumerate(losses, 1)), "train.log")
    assert list(curve(run, "train_loss_raw").values()) == losses
