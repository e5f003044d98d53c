import numpy as np
import pytest
import torch

from ckaudit.recorder import Recorder
from ckaudit.recorder.batch_facts import fingerprint, row_fingerprints
from ckaudit.recorder.checks.held_out_rows import MIN_ROW_TOKENS, HeldOutCheck, rows_of

NAME = "held_out_rows_trained_on"
SOURCE = torch.Generator().manual_seed(7)


def tokens(rows, length=40, vocabulary=50):
    return torch.randint(0, vocabulary, (rows, length), generator=SOURCE)


def share(held, *seen):
    """Return the share of held-out rows among those seen, by comparing each with each."""
    rows = [row.tolist() for row in held]
    return 100 * sum(any(row == other.tolist() for batch in seen for other in batch) for row in rows) / len(rows)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(3, 9), (1, 4, 5), (2, 70_000)])
def test_a_row_has_the_hash_of_an_array_that_is_this_row_alone(dtype, shape):
    rows = (torch.rand(shape, generator=SOURCE) * 100).to(dtype)
    assert row_fingerprints(rows).tolist() == [int(fingerprint(row)) for row in rows]
    if dtype != torch.bfloat16:
        assert row_fingerprints(rows.numpy()).tolist() == row_fingerprints(rows).tolist()


def test_the_share_is_that_of_comparing_each_row_with_each():
    held, fresh = tokens(20), tokens(30)
    batches = [torch.cat((held[:3], fresh[:5])), fresh[5:15], torch.cat((fresh[15:20], held[2:8]))]
    known = HeldOutCheck()
    known.add_batch(held[:10])
    known.add_batch((held[10:], fresh[:10]))  # a pair: only its inputs are rows
    for count, batch in enumerate(batches, 1):
        assert known.overlap(batch) == {NAME: pytest.approx(share(held, *batches[:count]))}
    assert known.overlap(held.numpy()) == {NAME: 100.0}


def test_rows_are_found_as_well_where_they_are_told_later():
    held, late = tokens(4), tokens(4)
    known = HeldOutCheck()
    known.add_batch(held)
    assert known.overlap(late) == {NAME: 0.0}
    known.add_batch(late)
    assert known.overlap(tokens(2)) == {NAME: 50.0}


def test_a_trainer_that_evaluates_on_all_that_it_trains_on_says_nothing():
    data = tokens(12)
    known = HeldOutCheck()
    known.add_rows({*rows_of(data)})
    assert known.overlap(data[:4]) == {}
    assert known.overlap(torch.cat((data[4:7], tokens(1)))) == {NAME: pytest.approx(100 * 7 / 12)}
    known = HeldOutCheck()
    known.add_batch(data)  # who declares rows held out has not told the trainer to see them
    assert known.overlap(data[:4]) == {NAME: pytest.approx(100 * 4 / 12)}


def test_rows_that_come_twice_in_a_batch_are_in_any_two_sets():
    data = tokens(12)
    known = HeldOutCheck()
    known.add_rows({*rows_of(data[:6])})
    assert known.overlap(data[4:]) == {NAME: pytest.approx(100 * 2 / 6)}
    assert known.overlap(torch.cat((data[4:], data[4:6]))) == {}
    assert known.overlap(data[4:]) == {}


def test_two_sets_drawn_of_few_different_rows_share_some_by_chance():
    kinds = tokens(200)
    drawn = [kinds[torch.randint(0, 200, (count,), generator=SOURCE)] for count in (128, *[16] * 20)]
    known = HeldOutCheck()
    known.add_batch(drawn[0])
    assert share(drawn[0], *drawn[1:]) > 50
    assert [known.overlap(batch) for batch in drawn[1:]] == [{}] * 20
    known = HeldOutCheck()
    known.add_batch(tokens(4))
    assert [known.overlap(batch) for batch in drawn[1:]] == [{NAME: 0.0}] * 20


def test_a_leak_is_told_though_a_text_comes_again_and_again():
    held, common = tokens(64), tokens(1)
    known = HeldOutCheck()
    known.add_batch(held)
    seen = [torch.cat((held[8 * each : 8 * each + 8], common, common, tokens(6))) for each in range(4)]
    assert [known.overlap(batch) for batch in seen] == [{NAME: 12.5 * count} for count in (1, 2, 3, 4)]


def test_a_row_that_is_nearly_the_same_is_another():
    held = tokens(5)
    near = held.clone()
    near[:, 3] += 1
    known = HeldOutCheck()
    known.add_batch(held)
    assert known.overlap(torch.cat((near, held.flip(1), held[:, 1:].repeat(1, 2)[:, :40]))) == {NAME: 0.0}


SHORT_ROWS = torch.zeros(4, MIN_ROW_TOKENS - 1, dtype=torch.int64)


@pytest.mark.parametrize("batch", [None, "text", torch.zeros(3), torch.zeros(0, 9), SHORT_ROWS])
def test_what_has_no_rows_or_too_short_ones_says_nothing(batch):
    known = HeldOutCheck()
    known.add_batch(batch)
    assert known.overlap(batch) == {}
    known.add_batch(tokens(3))
    assert known.overlap(batch) == {}


@pytest.mark.parametrize("left", [True, False])
def test_a_short_text_is_no_row_however_long_its_padding(left):
    short, long = torch.zeros(3, 60, dtype=torch.int64), torch.zeros(3, 60, dtype=torch.int64)
    for padded, length in ((short, MIN_ROW_TOKENS - 1), (long, MIN_ROW_TOKENS + 4)):
        padded[:, slice(-length, None) if left else slice(0, length)] = 1 + tokens(3, length)
    known = HeldOutCheck()
    known.add_batch(short)
    assert known.overlap(short) == {}
    known.add_batch(long)
    assert known.overlap(short) == {}
    assert known.overlap(torch.cat((long[:1], short))) == {NAME: pytest.approx(100 / 3)}


def test_no_more_rows_are_remembered_than_allowed():
    known, held = HeldOutCheck(max_rows=4), tokens(6)
    for row in held:
        known.add_batch(row[None])
    assert known.overlap(held) == {NAME: 100.0}  # of the four that it knows
    assert known.overlap(tokens(3)) == {NAME: 100.0}


def test_points_are_compared_by_their_bits():
    held = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
    known = HeldOutCheck()
    known.add_batch(held)
    assert known.overlap(np.array([[0.3, 0.4], [0.3, 0.5]], np.float32)) == {NAME: 50.0}


def test_a_run_says_how_many_held_out_rows_it_has_met(tiny, loss_of, tmp_path, lines):
    held = tokens(16, vocabulary=17)
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen = {}
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for step in range(1, 61):
            drawn = tokens(4, vocabulary=17)
            inputs = torch.cat((drawn[:2], held[step % 15 : step % 15 + 2])) if step % 3 == 0 else drawn
            targets = inputs.roll(-1, 1)
            if step == 4:
                recorder.hold_out(held[:9])
            if step == 20:
                recorder.pin((held[9:], held[9:]), held_out=True)
            optimizer.zero_grad()
            loss = loss_of(model, (inputs, targets))
            loss.backward()
            optimizer.step()
            recorder.step(loss, batch=(inputs, targets))
            seen[step] = inputs
    found = {line["step"]: line[NAME] for line in lines(tmp_path) if NAME in line}
    assert {10, 20, 25, 30, 50} <= set(found)
    met = []
    for step in sorted(found):
        met.append(seen[step])
        assert found[step] == pytest.approx(share(held[:9] if step < 20 else held, *met))
    assert 0 < max(found.values()) < 100


def test_where_nothing_is_told_nothing_is_said(tiny, train, tmp_path, lines):
    train(tiny(), 30, tmp_path)
    assert not [line for line in lines(tmp_path) if NAME in line]
