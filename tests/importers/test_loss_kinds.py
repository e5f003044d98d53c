import json

import pytest
from msgspec import UNSET

from ckaudit.importers import import_source
from ckaudit.importers.kinds_of_loss import loss_kind_of_names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["epoch", "train/box_loss", "train/cls_loss", "train/dfl_loss", "metrics/mAP50(B)"], "other"),
        (["step", "loss", "loss_bbox", "mask_loss"], "other"),
        (["loss", "reward", "reward_std", "kl", "num_tokens"], "other"),
        (["loss", "rewards/chosen", "rewards/rejected", "logps/chosen"], "other"),
        (["policy_loss", "value_loss", "entropy"], "other"),
        (["d_loss", "g_loss"], "other"),
        (["train_loss", "val_loss", "val_rmse"], "other"),
        (["mse_loss", "lr"], "other"),
        (["loss", "val_dice"], "other"),
        (["loss", "psnr"], "other"),
        (["step", "loss", "lr", "tokens"], "nats_per_token"),
        (["train/loss", "throughput/tokens_per_sec"], "nats_per_token"),
        (["loss", "ppl"], "nats_per_token"),
        (["step", "train/lm_loss"], "nats_per_token"),
        (["step", "loss", "grad_norm", "lr"], None),
        (["loss", "accuracy", "val_loss"], None),
        ([], None),
    ],
)
def test_the_names_beside_a_loss_tell_what_it_counts(names, expected):
    assert loss_kind_of_names(names) == expected


def table(names, rows=30):
    lines = [
        ",".join(names),
        *(",".join(str(row if name in ("step", "epoch") else 3.0) for name in names) for row in range(1, rows)),
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["step", "loss", "reward"], "other"), (["step", "loss", "tokens"], "nats_per_token"), (["step", "loss", "lr"], UNSET)],
)
def test_a_table_a_file_of_lines_and_a_trainer_s_state_say_the_same(tmp_path, names, expected):
    (tmp_path / "log.csv").write_text(table(names))
    rows = [dict.fromkeys(names, 3.0) | {"step": step} for step in range(1, 30)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows, "global_step": 29}))
    kinds = [import_source(path).manifest.loss_kind for path in sorted(tmp_path.iterdir())]
    assert kinds == [expected] * 3
