"""Ranks, read from their own files."""

import json
from pathlib import Path

import numpy as np

from ckaudit.metrics.ranks import rank_step_time, straggler_ratio
from ckaudit.run.read import read_run


def write(folder: Path, step: int, rank: int | None, **facts: object) -> None:
    name = f"analysis_checkpoint_step_{step:08d}" + ("" if rank is None else f".rank{rank:03d}") + ".json"
    head = {"schema_version": "ck.analysis.v1", "step": step} | ({} if rank is None else {"rank": rank})
    (folder / name).write_text(json.dumps(head | facts))


def test_the_facts_of_all_ranks_are_joined_to_one_row_per_step(tmp_path: Path) -> None:
    times = {10: [1.0, 1.0, 1.6, 1.0], 20: [1.0, 1.0, 1.0, 1.0]}
    for step, seconds in times.items():
        write(tmp_path, step, None, loss=2.0)
        for rank, second in enumerate(seconds):
            write(tmp_path, step, rank, rank_facts={"step_time": second, "memory_used": 5})
    run = read_run(tmp_path)
    assert run.checkpoint_steps.tolist() == [10, 20]
    joined = rank_step_time(run)
    assert joined.labels == ("rank.0", "rank.1", "rank.2", "rank.3")
    assert joined.values.tolist() == list(times.values())
    assert straggler_ratio(run).values.ravel().tolist() == [1.6, 1.0]


def test_a_rank_that_wrote_nothing_is_not_recorded(tmp_path: Path) -> None:
    for step, ranks in {10: (0, 1), 20: (0,)}.items():
        write(tmp_path, step, None)
        for rank in ranks:
            write(tmp_path, step, rank, rank_facts={"step_time": 1.0})
    run = read_run(tmp_path)
    assert rank_step_time(run).recorded.tolist() == [[True, True], [True, False]]
    assert straggler_ratio(run).recorded.ravel().tolist() == [True, False]
    assert np.isnan(straggler_ratio(run).values[1, 0])
