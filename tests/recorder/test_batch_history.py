import json
import random

import pytest
import torch
from msgspec import UNSET
from torch import nn

from ckaudit.metrics.data import batch_duplicate_share, batch_repeat_distance
from ckaudit.recorder import Recorder
from ckaudit.recorder.batch_facts import BatchesSeen, duplicate_share
from ckaudit.recorder.files.scalar_log import values_backwards
from ckaudit.run.read import read_run
from ckaudit.validate import validate
from tests.metrics.samples import cells


def test_the_distance_is_that_of_a_search_through_everything_before():
    source, seen, names = random.Random(0), BatchesSeen(max_batches=20), []
    for step in range(300):
        name = str(source.randrange(40))
        earlier = [then for then in range(max(0, step - 20), step) if names[then] == name]
        assert seen.observe(step, name) == (step - earlier[-1] if earlier else None)
        names.append(name)


@pytest.mark.parametrize("rows", [[[1, 2], [1, 2], [2, 1]], [[1, 1]] * 4, [[1, 2], [3, 4]]])
def test_duplicates_are_counted_pair_by_pair(rows):
    repeated = sum(any(row == other for other in rows[:place]) for place, row in enumerate(rows))
    assert duplicate_share(torch.tensor(rows)) == pytest.approx(repeated / len(rows))


def test_pictures_are_compared_by_some_of_their_numbers_and_sparse_rows_not_at_all():
    pictures = torch.randn(6, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    assert duplicate_share(pictures) == 0
    assert duplicate_share(pictures[torch.tensor([0, 1, 0, 3, 1, 0])].half()) == pytest.approx(3 / 6)
    kinds = torch.eye(20)[torch.tensor([3, 3, 3, 5])]
    assert duplicate_share(kinds) == duplicate_share(torch.zeros(4, 28, 28)) == 0


def test_a_checkpoint_says_how_many_pictures_are_alike(tmp_path):
    pictures = torch.randn(4, 3, 8, 8)[torch.tensor([0, 1, 0, 1])]
    run(nn.Conv2d(3, 2, 3), tmp_path, [(pictures, torch.zeros(4))] * 10)
    assert batch_duplicate_share(read_run(tmp_path)).values.ravel().tolist() == [0.5]


def test_a_table_of_few_columns_has_rows_that_are_alike_by_chance(tmp_path, read):
    run(nn.Linear(4, 2), tmp_path, [(torch.ones(8, 4), torch.zeros(8))] * 10)
    assert read(tmp_path, 10).data.duplicate_share is UNSET


def test_rows_of_eight_numbers_that_are_equal_are_the_same_row(tmp_path):
    table = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))[torch.tensor([0, 1, 2, 0, 1, 2])]
    run(nn.Linear(8, 2), tmp_path, [(table, torch.zeros(6))] * 10)
    assert batch_duplicate_share(read_run(tmp_path)).values.ravel().tolist() == [0.5]


def test_short_rows_of_measured_numbers_are_the_same_row_too(tmp_path, read):
    points = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    run(nn.Linear(2, 2), tmp_path / "points", [(torch.cat((points, points)), torch.zeros(24))] * 10)
    assert read(tmp_path / "points", 10).data.duplicate_share == 0.5
    places = torch.randint(0, 9, (24, 2), generator=torch.Generator().manual_seed(0)) / 9
    run(nn.Linear(2, 2), tmp_path / "places", [(places, torch.zeros(24))] * 10)
    assert read(tmp_path / "places", 10).data.duplicate_share is UNSET


def run(model, folder, parts, *, start_step=0):
    with Recorder(model, folder, start_step=start_step, vocabulary=17) as recorder:
        for place, (inputs, targets) in enumerate(parts):
            recorder.step(1.0, batch=(inputs, targets), batch_id=place)
    assert recorder._guard.failures == 0


def test_a_loader_that_begins_anew_at_a_resume_is_seen(tiny, batches, tmp_path, lines):
    parts = batches(20)
    run(tiny(), tmp_path / "right", parts[:15])
    run(tiny(), tmp_path / "right", parts[10:], start_step=10)
    assert not any("batch_repeat_distance" in line for line in lines(tmp_path / "right"))
    run(tiny(), tmp_path / "wrong", parts[:15])
    run(tiny(), tmp_path / "wrong", parts[:5], start_step=10)
    found = {line["step"]: line["batch_repeat_distance"] for line in lines(tmp_path / "wrong")[15:]}
    assert found == dict.fromkeys(range(11, 16), 10)
    # After a resume from the end, the batches of the replaced stretch are not looked at.
    run(tiny(), tmp_path / "wrong", parts[5:10], start_step=15)
    assert [line["batch_repeat_distance"] for line in lines(tmp_path / "wrong")[20:]] == [10] * 5


def test_a_loader_that_stands_still_is_seen(tiny, batches, tmp_path, read):
    (part,) = batches(1)
    run(tiny(), tmp_path, [part] * 12)
    assert cells(batch_repeat_distance(read_run(tmp_path))) == {(step, "batch_repeat_distance"): 1 for step in range(2, 13)}
    assert not validate([tmp_path]).findings
    assert read(tmp_path, 10).data.batch_id == 9


def test_a_checkpoint_says_how_many_sequences_are_alike(tiny, batches, tmp_path):
    (inputs, targets), same = batches(1)[0], torch.tensor([0, 1, 0, 0])
    run(tiny(), tmp_path, [(inputs[same], targets[same])] * 10)
    assert batch_duplicate_share(read_run(tmp_path)).values.ravel().tolist() == [0.5]


def test_a_log_is_read_backwards_past_what_was_replaced(tmp_path):
    path = tmp_path / "scalars.jsonl"
    told = [(1, "a"), (2, "b"), (3, "old"), (4, "old"), (3, "c"), (3, None), (4, "d"), (9, "later")]
    text = "\n".join(json.dumps({"step": step} | ({"h": name} if name else {})) for step, name in told)
    path.write_text(f"{text}\n[]\nnot json\n")
    assert values_backwards(path, "h", until=4, max_values=9) == {4: "d", 3: "c", 2: "b", 1: "a"}
    assert values_backwards(path, "h", until=4, max_values=2) == {4: "d", 3: "c"}
    assert values_backwards(path, "h", until=2, max_values=9) == {2: "b", 1: "a"}
    assert values_backwards(tmp_path / "none", "h", until=2, max_values=9) == {}


def test_an_array_that_the_program_holds_is_no_new_one_of_a_loader(tiny, batches, tmp_path, lines):
    (held,) = batches(1)
    run(tiny(), tmp_path / "held", [held] * 12)
    told = [line.get("batch_reused") for line in lines(tmp_path / "held")]
    assert told == [None] * 3 + [1] * 9  # two repeats are seen before an array is kept for a step
    run(tiny(), tmp_path / "views", [(held[0].detach(), held[1]) for _ in range(12)])
    assert [line.get("batch_reused") for line in lines(tmp_path / "views")] == told
    run(tiny(), tmp_path / "made anew", [tuple(part.clone() for part in held) for _ in range(12)])
    assert all("batch_reused" not in line for line in lines(tmp_path / "made anew"))
    assert [line["batch_repeat_distance"] for line in lines(tmp_path / "made anew")[1:]] == [1] * 11
    buffer, other = held[0].clone(), batches(2)[1][0]
    with Recorder(tiny(), tmp_path / "filled anew", vocabulary=17) as recorder:
        for place in range(12):  # one buffer, and new rows in it at each step
            recorder.step(1.0, batch=(buffer.copy_(held[0] if place % 2 else other), held[1]))
    assert not any("batch_reused" in line for line in lines(tmp_path / "filled anew"))
