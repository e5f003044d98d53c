"""Flags become incidents where they last, and stay noise where the whole record is like that."""

import numpy as np
import pytest

from ckaudit.run.spikes import Incident, as_one_of_many, incidents

RNG = np.random.default_rng(7)


def events(excess: np.ndarray) -> list[Incident]:
    flags = excess > 6
    found = incidents(flags, flags & (excess > 7), quiet=25)
    return [each for each in (as_one_of_many(one, excess, flags, beyond=2, points=200) for one in found) if each.is_incident]


def test_heavy_tails_make_no_event() -> None:
    tails = np.abs(RNG.standard_t(1.5, 2_000))  # a normal value is beyond 6 once in 500 million, one of these once in 30
    flags = tails > 6
    assert flags.mean() > 0.02
    assert any(each.is_incident for each in incidents(flags, tails > 7, quiet=25))
    plain = np.abs(RNG.normal(size=2_000))
    assert len(events(np.where(tails > 15, 15, tails))) < len(incidents(flags, tails > 7, quiet=25)) / 4
    assert not events(plain)


@pytest.mark.parametrize("tall", [9.0, 60.0])
@pytest.mark.parametrize("long", [1, 3, 30])
def test_an_event_stays_one_in_plain_noise(tall: float, long: int) -> None:
    excess = np.abs(RNG.normal(size=1_000))
    excess[600 : 600 + long] = tall
    (event,) = events(excess)
    assert (event.first, event.last) == (600, 599 + long)


def test_an_event_beyond_all_that_batches_do_stands_out_of_heavy_tails_too() -> None:
    tails = np.minimum(np.abs(RNG.standard_t(1.5, 1_000)), 15)
    tails[600:620] = 60
    assert any(each.first <= 600 and each.last >= 619 for each in events(tails))


def test_events_before_it_do_not_hide_an_event() -> None:
    excess = np.abs(RNG.normal(size=1_000))
    for start in (500, 560, 620):
        excess[start : start + 15] = 40
    assert [each.first for each in events(excess)] == [500, 560, 620]
