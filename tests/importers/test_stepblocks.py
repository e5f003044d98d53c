"""Blocks of lines below a line that names their step."""

from collections.abc import Callable

from ckaudit.importers import Imported

Import = Callable[..., Imported]


def curve(run: Imported, name: str) -> dict[int, float]:
    """Return what a run holds under a name, by step."""
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def epoch(number: int) -> str:
    """Return an epoch of four blocks and an evaluation, as Coqui TTS prints them."""
    steps = "".join(
        f"\n\x1b[1m   --> STEP: {25 * place}/100 -- GLOBAL_STEP: {100 * number + 25 * (place + 1)}\x1b[0m\n"
        f"     | > loss: {60 - 4 * number - place:.5f}  (57.48063)\n     | > grad_norm: {100 + place:.1f}  (130.00000)\n"
        for place in range(4)
    )
    return (
        f"\n > EPOCH: {number}/1000\n\n > TRAINING (2022-03-05 09:12:41) \n{steps}\n > EVALUATION \n\n  --> EVAL PERFORMANCE\n"
        f"     | > avg_loss: {50 - number:.5f} (+0.0)\n"
    )


def test_values_hold_at_the_step_above_them(imported: Import) -> None:
    run = imported("".join(map(epoch, range(3))), "trainer_0_log.txt")
    assert run.source == "blocks of lines under a step"
    wanted = {100 * number + 25 * (place + 1): 60.0 - 4 * number - place for number in range(3) for place in range(4)}
    assert curve(run, "train_loss_raw") == wanted
    assert curve(run, "grad_global_norm") == {step: 100.0 + (step // 25 - 1) % 4 for step in wanted}
    assert curve(run, "val_loss") == {100: 50.0, 200: 49.0, 300: 48.0}


def test_steps_that_go_back_are_another_format(imported: Import) -> None:
    text = "".join(f"step {place % 3 + 1}\nloss: {2 - place / 10:.2f}\n" for place in range(9))
    assert imported(text, "out.log").source != "blocks of lines under a step"
