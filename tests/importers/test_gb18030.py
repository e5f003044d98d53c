"""Chinese texts: in UTF-8 and in the encodings before it, with Chinese words for what they log."""

import gzip

import pytest

from ckaudit.importers import import_source
from ckaudit.importers.gb18030 import is_gb18030
from ckaudit.importers.importer import rows_of

LOSSES = [2.31, 2.02, 1.8, 1.66, 1.5, 1.41]
COLON, COMMA = "\uff1a", "\uff0c"
CONSOLE = "模型训练开始\n" + "".join(
    f"当前Batch: {10 * batch}/30 | 当前epoch:{epoch}/2 | 当前损失值: {LOSSES[3 * epoch + batch - 1]} | 当前准确率: {batch}.00%\n"
    for epoch in (0, 1)
    for batch in (1, 2, 3)
).replace(": ", COLON)
TABLE = "轮次,训练损失,验证损失\n" + "".join(f"{place},{loss},{loss + 0.1:.2f}\n" for place, loss in enumerate(LOSSES, 1))


@pytest.fixture
def rows(tmp_path):
    def read(name, data):
        (tmp_path / name).write_bytes(data)
        return rows_of(import_source(tmp_path / name).table)

    return read


@pytest.mark.parametrize("encoding", ["gb2312", "gbk", "gb18030", "utf-8"])
def test_a_console_is_read_in_any_encoding(rows, encoding):
    assert [row["train_loss_raw"] for row in rows("train.log", CONSOLE.encode(encoding))] == LOSSES
    assert [row["step"] for row in rows("train.log", CONSOLE.encode(encoding))] == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("encoding", ["gbk", "utf-8"])
def test_a_table_is_read_in_any_encoding(rows, encoding):
    read = rows("log.csv", TABLE.encode(encoding))
    assert [row["train_loss_raw"] for row in read] == LOSSES
    assert [row["val_loss"] for row in read] == [round(loss + 0.1, 2) for loss in LOSSES]


def test_a_packed_file_is_read_too(rows):
    assert [row["train_loss_raw"] for row in rows("train.log.gz", gzip.compress(CONSOLE.encode("gbk")))] == LOSSES


def test_epochs_and_episodes_are_counted_in_chinese_too(rows):
    epochs = "".join(
        f"第{place}轮 训练损失{COLON}{loss}{COMMA}验证损失{COLON}{loss + 0.1:.2f}\n" for place, loss in enumerate(LOSSES, 1)
    )
    assert [row["train_loss_raw"] for row in rows("a.log", epochs.encode("gbk"))] == LOSSES
    episodes = "".join(f"第 {place} 回合 奖励: {place - 20.5}\n" for place in range(1, 9))
    assert [row["microbench_score/episode_reward"] for row in rows("b.log", episodes.encode())] == [n - 20.5 for n in range(1, 9)]


@pytest.mark.parametrize(
    "data",
    [
        CONSOLE.encode(),
        CONSOLE.encode()[:-2] + b"\xff" * 9,  # a few broken characters
        "é ü ß: übergroße Verluste für Größen, très élevée, coûté".encode("latin-1"),
        CONSOLE.encode("utf-16"),
        bytes(range(128, 256)) * 4,
        "损失".encode("gbk"),
        b"step,loss\n1,2.5\n",
    ],
)
def test_no_other_text_is_taken_for_it(data):
    assert not is_gb18030(data)
