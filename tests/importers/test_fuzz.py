"""Broken copies of real files give a valid run or one of our own errors, never anything else."""

import random
from pathlib import Path

import pytest

from ckaudit.contract.schema.scalars import NAMES
from ckaudit.errors import CkauditError
from ckaudit.importers import import_source
from tests.loops import for_each

REAL = Path(__file__).parents[2] / "fixtures" / "real"
FILES = (
    "hf_trainer/whisper_small_hi_overfit/trainer_state.json",
    "hf_trainer/mistral_lora_4ep/checkpoint-500/trainer_state.json",
    "algoperf/criteo_genadam_inf_step73/measurements.csv",
    "multipowerlaw/csv_400/wsdcon_3.csv",
    "olmo/peteish1.csv",
    "mmengine/vis_data/20241205_152037.json",
    "hf_trainer/mistral_lora_4ep/trainer_log.first600.jsonl",
    "megatron_golden/bert_sm_h100.json",
    "bigscience/tr11-176B-ml__chronicles__it42780-42784.log",
    "llmc/siddanth_124M_main.first2000.log",
    "parameter_golf/gdn_hybrid_seq32768_two_runs.txt",
    "parameter_golf/hnet_byte260_4h.log",
)
DOCUMENTS = ("trainer_state.json", "bert_sm_h100.json")


def check(path: Path, data: bytes) -> bool:
    path.write_bytes(data)
    try:
        run = import_source(path)
    except CkauditError:
        return False
    places = [(row.get("session", 0), row["step"]) for row in run.rows]
    assert places == sorted(set(places))
    for row in run.rows:
        assert isinstance(row["step"], int)
        assert row["step"] >= 0
        names = set(row) - {"step", "session", "time"}
        assert names
        assert {name.partition("/")[0] for name in names} <= NAMES
        assert all(isinstance(row[name], float) for name in names)
    return True


@pytest.mark.parametrize("file", FILES)
def test_a_file_cut_anywhere(tmp_path, file):
    data = (REAL / file).read_bytes()
    read = [check(tmp_path / Path(file).name, data[:end]) for end in range(0, len(data), 997)]
    assert not read[0]
    assert any(read) != file.endswith(DOCUMENTS)


@for_each("file", FILES)
@for_each("seed", range(8))
def test_flipped_bytes(tmp_path, file, seed):
    source = random.Random(seed)
    data = bytearray((REAL / file).read_bytes())
    for _ in range(source.choice([1, 10, 300])):
        data[source.randrange(len(data))] = source.randrange(256)
    assert check(tmp_path / Path(file).name, bytes(data)) in (True, False)


@for_each("seed", range(300))
def test_tables_of_odd_cells(tmp_path, seed):
    source = random.Random(seed)
    cells = [
        "1",
        "2",
        "1e5",
        "-3",
        "nan",
        "inf",
        "",
        '"',
        '""',
        "x",
        "1,5",
        "é",
        "\r",
        "\n",
        "9" * 400,
        "0x1",
        "1_0",
        "\x85",
        "step",
        " ",
    ]
    rows = [",".join(source.choice(cells) for _ in range(source.randrange(6))) for _ in range(source.randrange(12))]
    check(tmp_path / "log.csv", "\n".join(["step,loss,val_loss", *rows]).encode())
