"""Losses of generators and discriminators, one or several of each, as the programs that train them print them."""

import math

import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.loss_names import adversarial_sides
from ckaudit.errors import UnreadableError

PART = "loss_part/"
HEAD = "================ Training Loss (Sat Jun  6 16:47:21 2020) ================\n"


def values(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def cycle_gan(number, epoch=1, iters=100, d_a=0.25):
    """Return a line as CycleGAN logs it, of losses that differ from line to line."""
    wave = number * 7 % 5 / 100
    return (
        f"(epoch: {epoch}, iters: {iters}, time: 0.2, data: 0.3) D_A: {d_a} G_A: {0.3 + wave:.3f} cycle_A: {6 + wave:.3f} "
        f"idt_A: 1.5 D_B: 0.75 G_B: {0.5 + wave:.3f} cycle_B: {2 + wave:.3f} idt_B: 0.5 \n"
    )


def test_two_pairs_of_networks_are_their_means(imported):
    text = HEAD + HEAD + "".join(cycle_gan(n, epoch, 100 * (n + 1)) for epoch in range(1, 11) for n in range(3))
    run = imported(text, "loss_log.txt")
    assert [*values(run, "loss_part/discriminator")] == [300 * epoch + 100 * n for epoch in range(10) for n in (1, 2, 3)]
    assert set(values(run, "loss_part/discriminator").values()) == {0.5}
    assert [*values(run, "loss_part/generator").values()][:2] == pytest.approx([0.4, 0.42])
    assert [*values(run, "loss_part/cycle").values()][:2] == pytest.approx([4.0, 4.02])
    assert set(values(run, "loss_part/idt").values()) == {1.0}
    assert [*values(run, "train_loss_raw").values()][:2] == pytest.approx([0.9, 0.92])
    assert (run.manifest.takes_turns, run.manifest.loss_kind) == (True, "other")
    assert any(
        "g_loss of g_a, g_b; d_loss of d_a, d_b; cycle of cycle_a, cycle_b; idt of idt_a, idt_b" in note for note in run.notes
    )
    left_out = [note for note in run.notes if note.startswith("left out")]
    assert not any(word in note for note in left_out for word in ("g_a", "d_b", "cycle", "idt", "sat jun"))


def test_a_side_that_is_no_number_is_found_and_one_that_is_missing_leaves_a_gap(tmp_path, imported):
    lines = [cycle_gan(n, 1 + n // 30, 10 * (n % 30 + 1), d_a="nan" if n >= 200 else 0.25) for n in range(240)]
    path = tmp_path / "loss_log.txt"
    path.write_text("".join(lines))
    found = [(each.code, each.severity, each.first_step) for each in triage(path).findings if each.code == "NUM001"]
    assert found == [("NUM001", "sev0", 2010)]
    lines[4] = lines[4].replace("D_A: 0.25 ", "")
    losses = values(imported("".join(lines[:60]), "loss_log.txt"), "loss_part/discriminator")
    assert (len(losses), 50 in losses, losses[60]) == (59, False, 0.5)


def test_the_column_that_the_user_names_is_the_loss(imported):
    text = "".join(cycle_gan(n, epoch, 100 * (n + 1)) for epoch in range(1, 4) for n in range(3))
    run = imported(text, "loss_log.txt", loss="cycle_a")
    assert [*values(run, "train_loss_raw").values()][:2] == pytest.approx([6.0, 6.02])
    assert set(values(run, "loss_part/discriminator").values()) == {0.5}


def test_a_healthy_game_of_four_is_not_ill(tmp_path):
    path = tmp_path / "loss_log.txt"
    path.write_text("".join(cycle_gan(n + epoch, epoch, 100 * (n + 1)) for epoch in range(1, 101) for n in range(3)))
    report = triage(path)
    assert (report.severity, report.judged) == (None, "limited")


def test_lists_of_losses_are_one_of_each_network(imported):
    line = "(epoch: {epoch}, iters: {iters}) D: 0.1, 0.2, 0.3, 0.4 | G: 0.5, 0.6, 0.7, 0.8 | Cyc: 0.01, 0.02, 0.03, {last}"
    lines = (line.format(epoch=n // 2 + 1, iters=100 * (n % 2 + 1), last=0.06 + n / 100) for n in range(10))
    text = "".join(f"{each} | \n" for each in lines)
    run = imported(f"##ComboGAN with weatherImage \n{HEAD}{text}", "loss_log.txt")
    assert [*values(run, "loss_part/discriminator").values()] == pytest.approx([0.25] * 10)
    assert [*values(run, "loss_part/generator").values()] == pytest.approx([0.65] * 10)
    assert [*values(run, "loss_part/cyc").values()] == pytest.approx([(0.12 + n / 100) / 4 for n in range(10)])
    assert [*values(run, "loss_part/cyc")] == [100 * n for n in range(1, 11)]


def test_the_halves_of_a_discriminator_are_their_mean(imported):
    line = "(epoch: {n}, iters: 4, time: 0.095, data: 0.200) G_GAN: 0.5 G_L1: {n}.785 D_real: 0.25 D_fake: 0.75 \n"
    run = imported("".join(line.format(n=n) for n in range(1, 9)), "loss_log.txt")
    assert set(values(run, "train_loss_raw").values()) == {1.0}
    assert any("their mean: d_loss of d_fake, d_real" in note for note in run.notes)
    plain = imported("".join(f"Epoch {n} d_loss_real: 0.25 d_loss_fake: 0.75 g_loss: 2.{n}\n" for n in range(1, 9)), "train.log")
    assert values(plain, "loss_part/discriminator") == dict.fromkeys(range(1, 9), 0.5)
    assert values(plain, "loss_part/generator") == {n: float(f"2.{n}") for n in range(1, 9)}


@pytest.mark.parametrize(
    ("line", "generator", "discriminator"),
    [
        ("{n} [D loss: 0.695783, acc.: 56.25%] [G loss: 1.{n:03}]", "1.{n:03}", 0.695783),
        ("{n} [D loss: -0.5] [G loss: 1.{n:03}]", "1.{n:03}", -0.5),
        ("{n} [D loss: 0.50, acc.: 62.5%] [Q loss: 0.75] [G loss: 1.{n:03}]", "1.{n:03}", 0.5),
        ("{n} [D1 loss: 0.25, acc.: 9%] [D2 loss: 0.75, acc.: 9%] [G1 loss: 1.{n:03}] [G2 loss: 1.{n:03}]", "1.{n:03}", 0.5),
        ("step {n}: d_loss: 0.5, g_loss: 1.{n:03}", "1.{n:03}", 0.5),
    ],
)
def test_a_line_that_begins_with_its_step(imported, line, generator, discriminator):
    run = imported("".join(line.format(n=n) + "\n" for n in range(0, 500, 5)), "train_loss.txt")
    steps = [n + 1 for n in range(0, 500, 5)]
    assert run.source == "key:value text log"
    assert values(run, "loss_part/generator") == pytest.approx({n + 1: float(generator.format(n=n)) for n in range(0, 500, 5)})
    assert values(run, "loss_part/discriminator") == dict.fromkeys(steps, discriminator)
    assert [*values(run, "train_loss_raw")] == steps
    assert not any(name.startswith("microbench_score") for name in run.table.names)
    assert run.manifest.takes_turns is True


@pytest.mark.parametrize(
    "line",
    [
        "[Epoch {epoch}/200] [Batch {batch}/50] [D loss: 0.500000] [G loss: 1.25]",
        "[Epoch {epoch}/200] [Batch {batch}/50] [D loss: 0.500000, acc:  75%] [G loss: 1.25, adv: 0.3, recon: 0.2] time: 0:01",
    ],
)
def test_batches_of_an_epoch_with_the_losses_of_both(imported, line):
    lines = [line.format(epoch=epoch, batch=batch) for epoch in range(3) for batch in range(0, 50, 10)]
    run = imported("\n".join([*lines, ""]), "train.log")
    assert [*values(run, "loss_part/generator")] == [50 * epoch + batch + 1 for epoch in range(3) for batch in range(0, 50, 10)]
    assert set(values(run, "train_loss_raw").values()) == {1.75}
    assert not any(name.startswith("microbench_score") for name in run.table.names)


def test_the_accuracy_of_a_classifier_stays_beside_a_plain_loss(imported):
    lines = (f"Epoch {n} loss: 0.{n} d_loss: 0.5 g_loss: 0.75 acc: 0.{n}" for n in range(1, 9))
    run = imported("\n".join([*lines, ""]), "train.log")
    assert values(run, "microbench_score/acc") == {n: n / 10 for n in range(1, 9)}
    assert values(run, "train_loss_raw") == {n: n / 10 for n in range(1, 9)}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["D_A", "G_A", "D_B", "G_B"], (("G_A", "G_B"), ("D_A", "D_B"))),
        (["loss_G_A", "loss_G_B", "loss_D_A", "loss_D_B"], (("loss_G_A", "loss_G_B"), ("loss_D_A", "loss_D_B"))),
        (["d1_loss", "d2_loss", "g_loss"], (("g_loss",), ("d1_loss", "d2_loss"))),
        (["train/g_loss_AB", "train/g_loss_BA", "d_loss"], (("train/g_loss_AB", "train/g_loss_BA"), ("d_loss",))),
        (["loss_G", "loss_G_A", "loss_G_B", "loss_D_A", "loss_D_B"], (("loss_G",), ("loss_D_A", "loss_D_B"))),
        (["G_GAN", "D_real", "D_fake"], (("G_GAN",), ("D_fake", "D_real"))),
        (["G_A", "G_B", "D_A"], None),  # names as short as these count in pairs alone
        (["g_1", "g_2", "d_3", "d_4"], None),
        (["g_loss", "d_real", "d_fake"], None),  # what a discriminator says
        (["D_real", "D_fake"], None),
        (["g_loss", "d_loss"], None),
        (["critic1_loss", "critic2_loss", "actor_loss"], None),
        (["val_g_loss_a", "val_g_loss_b", "val_d_loss_a", "val_d_loss_b"], None),
        ([], None),
    ],
)
def test_which_names_are_of_which_side(names, expected):
    sides = adversarial_sides(names)
    assert (sides and (sides.generators, sides.discriminators)) == expected


def test_a_log_of_other_letters_has_no_adversarial_losses(imported):
    with pytest.raises(UnreadableError, match="no line of a step holds a value whose name is known"):
        imported("".join(f"Epoch {n} g_a: 0.{n} g_b: 0.5\n" for n in range(1, 9)), "train.log")
    run = imported("".join(f"step {n} loss: 0.{n} d_1: {n}.5 nan_1: 3\n" for n in range(1, 9)), "train.log")
    assert run.table.names == ("train_loss_raw",)
    assert not math.isnan(sum(values(run, "train_loss_raw").values()))


BARE = {
    "pix2pix in one epoch": "(epoch: 1, iters: {n}00, time: 0.31, data: 0.16) G_GAN: {g} G_L1: 13.4 D_real: {d} D_fake: {d}",
    "DeblurGAN": "(epoch: {n}, iters: 100, time: 0.62) G_GAN: {g} G_L1: 1021.7 D_real+fake: {d}",
    "PGAN": "[{n} :    100] loss G : {g} loss D : {d}",
    "SinGAN": "Iteration {n}00, D: {d}, D_r: 1.6, D_f: -1.7, G: {g}, G_recon: 0.03",
    "a progress bar": "Epoch {n}: 100%|█████| 28/28 [00:25<00:00,  1.11it/s, D={d}, G={g}, FID=-]",
}


@pytest.mark.parametrize("console", BARE)
def test_both_sides_are_known_by_many_names(imported, console):
    losses = [(1 + n / 8, 2 - n / 8) for n in range(1, 9)]
    run = imported("".join(f"{BARE[console].format(n=n, g=g, d=d)}\n" for n, (g, d) in enumerate(losses, 1)), "train.log")
    assert [row["loss_part/generator"] for row in run.rows] == [g for g, _ in losses]
    assert [row["loss_part/discriminator"] for row in run.rows] == [d for _, d in losses]
    assert run.manifest.takes_turns is True


def test_the_loss_of_the_whole_is_that_of_the_generator_in_keras(imported):
    rows = "".join(f"{n},0.6,0.7,{0.9 - n / 99},{0.6 + n / 99}\n" for n in range(9))
    run = imported(f"epochs,disc_fake_loss,disc_real_loss,gan_loss,mean_disc_loss\n{rows}", "losses.csv")
    assert [row["loss_part/generator"] for row in run.rows] == [0.9 - n / 99 for n in range(9)]
