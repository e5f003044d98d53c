"""By its first batches an order of the data is known again, however far a run came."""

import json
from pathlib import Path

from ckaudit.fleet.facts import facts_of
from ckaudit.run.read import read_run


def facts(folder: Path, batches: list[str]) -> dict[str, str]:
    folder.mkdir()
    lines = [{"step": step, "train_loss_raw": 3.0, "input_hash": batch} for step, batch in enumerate(batches, start=1)]
    (folder / "scalars.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return facts_of(read_run(folder))


def test_two_runs_of_one_order_have_one_name_for_it_though_one_broke_off(tmp_path: Path) -> None:
    batches = [f"{number * 7919 % 1009:04x}" for number in range(200)]
    whole, broken_off = facts(tmp_path / "a", batches), facts(tmp_path / "b", batches[:20])
    other, too_short = facts(tmp_path / "c", batches[::-1]), facts(tmp_path / "d", batches[:4])
    assert whole["data_order"] == broken_off["data_order"] != other["data_order"]
    assert "data_order" not in too_short
