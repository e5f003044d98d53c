"""Tables as people write them: odd names, marks, separators, gaps. A clear word for each, no wrong alarm, never a bug line."""

import json
import math
from random import Random

import pytest

from ckaudit.cli.run import run

RANDOM = Random(5)
LOSS = [1 + 3 * math.exp(-row / 30) + RANDOM.gauss(0, 0.02) for row in range(60)]
ROWS = [*enumerate(LOSS, 1)]


def table(header, row):
    return header + "\n" + "".join(row(step, loss) + "\n" for step, loss in ROWS)


def judged(tmp_path, capsysbinary, text, *options, encoding="utf-8"):
    """Return the exit code, the report and the words on standard error of `triage` for a table."""
    file = tmp_path / "log.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    code = run(["triage", str(file), "--no-config", "-f", "json", *options])
    told = capsysbinary.readouterr()
    assert b"bug in ckaudit" not in told.err
    return code, json.loads(told.out) if told.out else None, told.err.decode()


def grave(report):
    return [each["code"] for each in report["findings"] if each["severity"] != "note"]


TAKEN = (
    "training nll",
    "nll_loss",
    "Loss/Train",
    "cross entropy",
    "train/ce",
    "Train NLL (nats/token)",
    "avg_loss",
    "batch loss",
    "tr_loss",
    "trainLoss",
    "loss (train)",
    "Training Loss",
    "total_loss",
    "lm loss",
    "NLL",
    "train_xent",
    "loss.train",
    "epoch_loss",
    "running loss",
    "diffusion_loss",
    "loss/contrastive_loss",
)


@pytest.mark.parametrize("name", TAKEN)
def test_what_programs_call_the_training_loss_is_taken_as_that(tmp_path, capsysbinary, name):
    code, report, _ = judged(tmp_path, capsysbinary, table(f"step,{name}", "{},{}".format))
    assert (code, grave(report)) == (0, [])
    assert f"taken: step from step, train_loss_raw from {name}" in report["notes"]
    assert next(each["outcome"] for each in report["vital"] if each["name"] == "loss_falls") == "judged"


def test_of_two_that_may_be_the_loss_one_is_named_with_its_option(tmp_path, capsysbinary):
    two = table("step,objective,Cost", lambda step, loss: f"{step},{loss},{2 * loss}")
    code, report, told = judged(tmp_path, capsysbinary, two)
    assert (code, report) == (2, None)
    assert "would take objective for the training loss" in told
    assert judged(tmp_path, capsysbinary, two, "--map", "loss=objective")[0] == 0
    beside = table("step,objective,Cost,lr", lambda step, loss: f"{step},{loss},{2 * loss},0.001")
    code, report, _ = judged(tmp_path, capsysbinary, beside)
    assert (code, report["judged"]) == (2, "nothing")
    assert "would take objective for the training loss" in report["to_judge_more"]


@pytest.mark.parametrize("name", ["perplexity", "ppl"])
def test_a_perplexity_is_no_loss_in_nats(tmp_path, capsysbinary, name):
    code, report, _ = judged(tmp_path, capsysbinary, table(f"step,{name},lr", lambda step, loss: f"{step},{loss},0.001"))
    assert (code, report["judged"], report["findings"]) == (2, "nothing", [])
    assert f"taken: step from step, train_ppl from {name}, learning_rate from lr" in report["notes"]


@pytest.mark.parametrize("name", ["train_acc", "Accuracy", "mean reward"])
def test_a_score_is_not_taken_for_a_loss(tmp_path, capsysbinary, name):
    text = table(f"step,{name}", lambda step, _: f"{step},{step / 60}")
    code, report, told = judged(tmp_path, capsysbinary, text, "--map", f"loss={name}")
    assert (code, report) == (2, None)
    assert f"{name} reads like a score, of which more is better" in told


def test_a_loss_of_any_name_is_that_of_its_validation_too(tmp_path, capsysbinary):
    text = table("step,mse_loss,val_mse_loss,aux_loss", lambda step, loss: f"{step},{loss},{loss + 1},{9 - loss}")
    code, report, _ = judged(tmp_path, capsysbinary, text)
    assert (code, grave(report)) == (0, [])
    assert "taken: step from step, train_loss_raw from mse_loss, val_loss from val_mse_loss" in report["notes"]


@pytest.mark.parametrize("names", ["content_loss,style_loss", "kl_loss,lr", "disc_loss,lr", "val_x_loss,lr"])
def test_parts_of_a_loss_are_no_training_loss(tmp_path, capsysbinary, names):
    _, report, _ = judged(tmp_path, capsysbinary, table(f"step,{names}", lambda step, loss: f"{step},{loss},{loss}"))
    assert report is None or report["state"].keys() <= {"learning_rate"}


POLICIES = ("policy_loss", "pg_loss", "value_loss", "train/entropy_loss", "losses/qf1_loss", "td_loss")


@pytest.mark.parametrize("name", POLICIES)
def test_the_loss_of_a_policy_is_neither_taken_nor_offered_as_a_training_loss(tmp_path, capsysbinary, name):
    _, report, told = judged(tmp_path, capsysbinary, table(f"step,{name}", "{},{}".format))
    assert report is None
    assert f"{name} was left out: it is the loss of a policy, whose data and targets change with it" in told
    code, report, told = judged(tmp_path, capsysbinary, table(f"step,{name},lr", lambda step, loss: f"{step},{loss},0.001"))
    assert (code, report["judged"], report["findings"]) == (2, "nothing", [])
    assert "would take" not in json.dumps(report)
    assert "train_loss_raw" not in report["state"]


def test_the_loss_of_a_policy_that_is_no_number_is_told(tmp_path, capsysbinary):
    broken = table("step,policy_loss,value_loss", lambda step, loss: f"{step},{loss},{loss if step < 40 else 'nan'}")
    code, report, _ = judged(tmp_path, capsysbinary, broken)
    assert (code, [(each["code"], each["first_step"]) for each in report["findings"]]) == (1, [("NUM001", 40)])
    unused = table("step,policy_loss,value_loss,lr", lambda step, loss: f"{step},{loss},nan,0.1")
    assert judged(tmp_path, capsysbinary, unused)[1]["findings"] == []


def test_scores_alone_are_refused_with_what_would_be_judged(tmp_path, capsysbinary):
    text = table("epoch,bleu,val_bleu", lambda step, _: f"{step},{step / 60},{step / 61}")
    code, report, told = judged(tmp_path, capsysbinary, text)
    assert (code, report) == (2, None)
    assert "bleu, val_bleu are scores, and no check judges how a training goes by scores alone" in told


def test_accuracies_alone_say_whether_anything_is_learnt(tmp_path, capsysbinary):
    rising = table("epoch,acc,val_acc", lambda step, _: f"{step},{step / 60},{step / 61}")
    code, report, _ = judged(tmp_path, capsysbinary, rising)
    assert (code, report["judged"], report["findings"]) == (0, "limited", [])
    standing = table("epoch,acc,val_acc", lambda step, _: f"{step},0.1,{0.1 + step % 2 / 100}")
    _, report, _ = judged(tmp_path, capsysbinary, standing)
    assert {finding["code"] for finding in report["findings"]} == {"EVAL003"}


def test_a_loss_on_a_test_set_is_the_held_out_one_where_there_is_no_other(imported):
    lines = "".join(f"{n},{3 / n},{4 / n},{n / 10}\n" for n in range(1, 6))
    rows = imported(f"epoch,Train Loss,Test Loss,Test Acc\n{lines}").rows
    assert rows[1] == {"step": 2, "train_loss_raw": 1.5, "val_loss": 2.0, "microbench_score/test_acc": 0.2}
    of_guide = imported(f"epoch,Loss/train,Loss/test,Accuracy/test\n{lines}").rows[1]
    assert of_guide == {"step": 2, "train_loss_raw": 1.5, "val_loss": 2.0, "microbench_score/test_accuracy": 0.2}
    both = imported(f"step,loss,val_loss,test_loss\n{lines}").rows
    assert both[0]["val_loss"] == 4.0


@pytest.mark.parametrize(
    "names",
    ["train_epoch_loss,valid_epoch_loss", "avg_train_loss,avg_val_loss", "Loss/total,val/loss/total", "loss_mean,val_loss_mean"],
)
def test_averages_and_totals_are_losses(imported, names):
    rows = imported(f"epoch,{names}\n" + "".join(f"{n},{3 / n},{4 / n}\n" for n in range(1, 6))).rows
    assert rows[1] == {"step": 2, "train_loss_raw": 1.5, "val_loss": 2.0}


HEALTHY = {
    "byte order mark": ("\ufeff" + table("step,loss", "{},{}".format), "utf-8"),
    "utf-16": (table("step,loss", "{},{}".format), "utf-16"),
    "semicolons": (table("step;loss", "{};{}".format), "utf-8"),
    "decimal comma": (table("step;loss", lambda step, loss: f"{step};{loss:.4f}".replace(".", ",")), "utf-8"),
    "tabs": (table("step\tloss", "{}\t{}".format), "utf-8"),
    "line ends of Windows": (table("step,loss", "{},{}".format).replace("\n", "\r\n"), "utf-8"),
    "blanks": (table(" step , loss ", " {} , {} ".format), "utf-8"),
    "quotes": (table('"step","loss"', '"{}","{}"'.format), "utf-8"),
    "steps as floats": (table("step,loss", "{}.0,{}".format), "utf-8"),
    "steps in powers of ten": (table("step,loss", lambda step, loss: f"{step * 1000:.1e},{loss}"), "utf-8"),
    "no steps": (table("loss,lr", lambda _, loss: f"{loss},0.001"), "utf-8"),
    "repeated steps": (table("step,loss", lambda step, loss: f"{(step + 1) // 2},{loss}"), "utf-8"),
    "empty columns": (table("step,loss,val_loss,,x", "{},{},,,".format), "utf-8"),
    "a column twice": (table("step,loss,loss", lambda step, loss: f"{step},{loss},{loss + 1}"), "utf-8"),
    "words among numbers": (table("step,loss", lambda step, loss: f"{step},{'warm' if step % 7 == 0 else loss}"), "utf-8"),
    "rows too long": (table("step,loss", lambda step, loss: f"{step},{loss}{',9' if step % 9 == 0 else ''}"), "utf-8"),
    "rows too short": (table("step,loss,grad_norm", "{},{}".format), "utf-8"),
    "cut in the middle": (table("step,loss,lr", lambda step, loss: f"{step},{loss},0.001")[:-9], "utf-8"),
    "a name of another alphabet": (table("étape,loss", "{},{}".format), "latin-1"),
    "escape sequences": (table("step,loss,\x1b[31mred,<script>x</script>", "{},{},1,2".format), "utf-8"),
    "below zero": (table("step,loss", lambda step, loss: f"{step},{loss - 3}"), "utf-8"),
    "around zero": (table("step,loss", lambda step, _: f"{step},{[0.02, -0.01, 1e-9, -0.03, 0.0][step * 7 % 5]}"), "utf-8"),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_table_in_odd_clothes_has_no_alarm(tmp_path, capsysbinary, name):
    text, encoding = HEALTHY[name]
    code, report, _ = judged(tmp_path, capsysbinary, text, encoding=encoding)
    assert (code, grave(report)) == (0, [])
    assert next(each["outcome"] for each in report["vital"] if each["name"] == "loss_finite") == "judged"


TOO_LITTLE = {
    "nothing": (b"", "is empty"),
    "a header only": (b"step,loss\n", "has a header line and no rows below it"),
    "one name": (b"loss\n3.0\n", "is no log that is known"),
    "times only": (b"time\n1\n2\n", "is no log that is known"),
    "no header": (b"1,4.0\n2,3.9\n3,3.8\n", "is no log that is known"),
    "steps beyond any count": (b"step,loss\n" + b"".join(b"%d,2\n" % (10**25 + row) for row in range(9)), "no value at any step"),
}


@pytest.mark.parametrize("name", TOO_LITTLE)
def test_too_little_is_said_in_a_clear_word(tmp_path, capsysbinary, name):
    text, word = TOO_LITTLE[name]
    code, report, told = judged(tmp_path, capsysbinary, text)
    assert (code, report) == (2, None)
    assert word in told
    assert "hint: " in told


def test_one_line_is_too_few_points_and_no_alarm(tmp_path, capsysbinary):
    code, report, _ = judged(tmp_path, capsysbinary, "step,loss\n1,3.0\n")
    assert (code, grave(report), report["judged"]) == (0, [], "limited")


def test_nan_words_among_five_points_are_that_and_nothing_else(tmp_path, capsysbinary):
    code, report, _ = judged(tmp_path, capsysbinary, "step,loss\n1,3\n2,nan\n3,2.5\n4,NaN\n5,2.0\n")
    assert (code, set(grave(report))) == (1, {"NUM001"})
    assert {each["first_step"] for each in report["findings"]} == {2, 4}
    code, report, _ = judged(tmp_path, capsysbinary, "step,loss\n1,3\n2,\n3,2.5\n4,null\n5,2.0\n")
    assert (code, grave(report)) == (0, [])


def test_no_name_reaches_the_screen_as_a_command_of_the_terminal(tmp_path, capsysbinary):
    (tmp_path / "log.csv").write_text(HEALTHY["escape sequences"][0])
    for kind in ("terminal", "markdown", "github", "junit"):
        run(["triage", str(tmp_path / "log.csv"), "--no-config", "-f", kind, "-v"])
        told = capsysbinary.readouterr()
        assert b"\x1b[31m" not in told.out + told.err


def rows_of(*columns):
    """Return the text of a table with steps from 1 and these columns of cells."""
    names, cells = zip(*columns, strict=True)
    return "\n".join(
        [",".join(["step", *names]), *(f"{step},{','.join(row)}" for step, row in enumerate(zip(*cells, strict=True), 1))]
    )


NANS, NUMBERS = ["nan"] * 60, [f"{loss:.4f}" for loss in LOSS]


@pytest.mark.parametrize(
    "columns",
    [
        [("loss", NANS)],
        [("loss", NANS), ("lr", ["0.1"] * 60)],
        [("loss", NANS), ("val_loss", ["", "", "nan"] * 20)],
        [("loss", NANS), ("val_loss", [NUMBERS[0], *NANS[1:]])],  # evaluated once, before the training
        [("loss", [*NUMBERS[:20], *NANS[20:]]), ("val_loss", ["", "", "nan", *[""] * 7] * 6)],
    ],
)
def test_a_loss_that_is_nan_from_some_step_to_the_end_is_no_number(tmp_path, capsysbinary, columns):
    code, report, _ = judged(tmp_path, capsysbinary, rows_of(*columns))
    broken = [each for each in report["findings"] if each["code"] == "NUM001"]
    assert (code, {each["severity"] for each in broken}) == (1, {"sev0"})
    assert min(each["first_step"] for each in broken) == 1 + columns[0][1].index("nan")
    assert not [each["code"] for each in report["findings"] if each["code"].startswith("D")]


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ([("loss", NANS), ("val_loss", NUMBERS)], "nan in loss stands alone"),
        ([("loss", NUMBERS), ("val_loss", NANS)], "nan in val_loss stands alone"),
        ([("loss", NUMBERS), ("grad_norm", NANS)], "nan in grad_norm stands alone"),
        ([("loss", [*NUMBERS[:2], "nan"] * 20)], "nan in loss stands between numbers all along"),
    ],
)
def test_nan_beside_a_loss_that_goes_on_is_a_gap(tmp_path, capsysbinary, columns, note):
    code, report, _ = judged(tmp_path, capsysbinary, rows_of(*columns))
    assert (code, grave(report)) == (0, [])
    assert f"{note}: read as not recorded" in report["notes"]


def test_steps_with_thousands_separators_are_counts(imported):
    steps = range(250, 2250, 250)
    quoted = imported("step,loss\n" + "".join(f'"{step:,}",{5 - step / 1000}\n' for step in steps)).rows
    tabbed = imported("step\tloss\n" + "".join(f"{step:,}\t{5 - step / 1000}\n" for step in steps)).rows
    assert [row["step"] for row in quoted] == [row["step"] for row in tabbed] == [*steps]


def test_falling_cells_with_a_decimal_comma_are_no_counts(imported):
    rows = imported("step;loss\n" + "".join(f"{step};{5 - step},250\n" for step in range(1, 5))).rows
    assert [row["train_loss_raw"] for row in rows] == [4.25, 3.25, 2.25, 1.25]


@pytest.mark.parametrize("mark", [";", ","])
def test_the_line_that_tells_excel_the_delimiter_is_not_the_header(imported, mark):
    run = imported(f"sep={mark}\nstep{mark}loss\n" + "".join(f"{step}{mark}{5 - step}\n" for step in range(1, 5)))
    assert [row["train_loss_raw"] for row in run.rows] == [4, 3, 2, 1]


def test_one_row_and_one_faulty_cell_are_told_in_the_singular(imported):
    run = imported("step,loss,lr\n1,2.5,x\n")
    assert any(note.endswith("1 row, comma between cells") for note in run.notes)
    assert any("1 cell of lr is no number and counts as not recorded" in note for note in run.notes)


def test_times_in_milliseconds_become_seconds(imported):
    table = imported("timestamp,step,loss\n" + "".join(f"{1_700_000_000_000 + 1000 * step},{step},2.5\n" for step in (1, 2, 3)))
    assert [row["time"] for row in table.rows] == [1_700_000_001, 1_700_000_002, 1_700_000_003]
    assert "the times are milliseconds" in table.notes
    lines = "".join(json.dumps({"step": step, "timestamp": 1.7e12 + step, "loss": 2.5}) + "\n" for step in (1, 2, 3))
    assert [row["time"] for row in imported(lines, "log.jsonl").rows] == pytest.approx([1.7e9] * 3)


def test_times_of_another_clock_are_told(imported):
    table = imported("timestamp,step,loss\n1.5,1,2.5\n2.5,2,2.4\n")
    assert not any("time" in row for row in table.rows)
    assert "the times were left out: they are no Unix times" in table.notes
