"""Losses under other names: taken where that is certain, with a note; else the hint names the option that takes them."""

import json

import pytest

from ckaudit.errors import UnreadableError
from tests.loops import for_each


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return [row[name] for row in run.rows if name in row]


PAIRS = [
    ("train/mse", "val/mse"),
    ("mse", "val_mse"),
    ("train_rmse", "valid_rmse"),
    ("mae_train", "mae_val"),
    ("Train MSE", "Validation MSE"),
    ("train/nll", "val/nll"),
    ("Loss/train", "Loss/valid"),
    ("training nll", "eval_nll"),
    ("trn_loss", "val_loss"),
    ("loss_trn", "loss_dev"),
    ("losses/train", "losses/val"),
]


@for_each("train, val", PAIRS)
@for_each("ending", [".csv", ".jsonl"])
def test_the_one_measure_that_was_taken_in_training_and_validation_is_the_loss(imported, train, val, ending):
    rows = [{"step": step, train: 3 / step, val: 4 / step, "acc": step / 9} for step in (1, 2, 3)]
    table = "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n"
    run = imported(table if ending == ".csv" else "".join(json.dumps(row) + "\n" for row in rows), f"log{ending}")
    assert curve(run, "train_loss_raw") == [3.0, 1.5, 1.0]
    assert curve(run, "val_loss") == [4.0, 2.0, 4 / 3]
    assert noted(run, f"train_loss_raw from {train}")
    assert noted(run, f"val_loss from {val}")


@for_each(
    "header, option",
    [
        ("step,train_mse,train_mae,val_mse,val_mae", "--map loss=train_mse --map val_loss=val_mse"),
        ("epoch,cost,val_cost,bpb,b", "--map loss=cost --map val_loss=val_cost"),
        (
            "epoch,train,valid,hits,b",
            "--map loss=train --map val_loss=valid would take train for the training loss, valid for that of",
        ),
        ("step,mse,mae,b,c", "--map loss=mse would take mse for the training loss"),
    ],
)
def test_what_is_not_certain_is_named_in_the_hint(imported, header, option):
    with pytest.raises(UnreadableError) as caught:
        imported(f"{header}\n1,2,3,4,5\n2,1,2,3,4\n")
    assert caught.value.hint.startswith(option)


@for_each(
    "header, train, val",
    [
        ("epoch,cost,val_cost,a,b", "cost", "val_cost"),
        ("step,train/bpb,val/bpb,a,b", "train/bpb", "val/bpb"),
        ("step,objective,a,b,c", "objective", ""),
        ("step,mse_noise,it_per_s,mem_MB,c", "mse_noise", ""),
        ("upd,nll_per_tok,gn,eta,sec_per_upd", "nll_per_tok", ""),
        ("ep,fit_err,dev_err,dev_top1,c", "fit_err", "dev_err"),
    ],
)
def test_the_one_name_with_another_word_for_a_loss_is_taken(imported, header, train, val):
    run = imported(f"{header}\n1,2,3,4,5\n2,1,2,3,4\n")
    assert noted(run, f"train_loss_raw from {train}")
    assert curve(run, "train_loss_raw") == [2.0, 1.0]
    assert bool(curve(run, "val_loss")) is bool(val)


def test_a_bound_of_which_more_is_better_is_no_loss(imported):
    with pytest.raises(UnreadableError):
        imported("sweep,elbo,kl_w\n1,-120,0.1\n2,-90,0.2\n")


def test_an_error_is_counted_on_held_out_data_too_or_is_no_loss(imported):
    with pytest.raises(UnreadableError):
        imported("step,errors,dev_err,c\n1,2,3,4\n2,1,2,3\n")


def test_a_critic_and_a_generator_by_their_names_alone_play_against_each_other(imported):
    run = imported("n,critic,gen,p_real\n1,1.4,0.7,0.4\n2,1.3,0.8,0.5\n")
    assert curve(run, "loss_part/generator") == [0.7, 0.8]
    assert curve(run, "loss_part/discriminator") == [1.4, 1.3]


def test_a_measure_beside_a_loss_is_none(imported):
    run = imported("step,box_loss,cls_loss,train/mse,val/mse,lr\n1,2,3,4,5,6\n2,1,2,3,4,5\n")
    assert not curve(run, "train_loss_raw")


@pytest.mark.parametrize("loss_kind", ["other"])
def test_a_measure_of_error_is_no_cross_entropy_of_tokens(imported, loss_kind):
    assert imported("step,train/mse,val/mse\n1,2,3\n2,1,2\n").manifest.loss_kind == loss_kind


def test_the_loss_of_a_variational_autoencoder_is_the_whole_beside_its_terms(imported):
    lines = "".join(f"step {n} loss_vae {3 / n} loss_recon {2 / n} loss_kl {1 / n} loss_mmd {0.1 / n}\n" for n in range(1, 9))
    run = imported(lines.replace(" loss", ", loss").replace("step ", "step: ").replace("_vae ", "_vae: "), "train.log")
    assert curve(run, "train_loss_raw") == [3 / n for n in range(1, 9)]


@for_each("arrow", ["-->", "->", "=>"])
def test_an_arrow_may_stand_between_a_name_and_its_number(imported, arrow):
    lines = "".join(f"Iter {n * 500}: Train Loss {arrow} {4 / n:.4f}, Val Loss {arrow} {5 / n:.4f}\n" for n in (1, 2, 4, 5))
    run = imported(lines, "train.log")
    assert curve(run, "train_loss_raw") == [4.0, 2.0, 1.0, 0.8]
    assert curve(run, "val_loss") == [5.0, 2.5, 1.25, 1.0]
