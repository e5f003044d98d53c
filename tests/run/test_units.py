"""Units of shares: the other one is recognised by range, by the writer's habit or by `--unit`, converted and named once."""

import numpy as np
import pytest

from ckaudit.contract.schema.scalars import SHARE_UNITS
from ckaudit.errors import UsageError
from ckaudit.metrics import metrics
from ckaudit.run.units import in_catalogue_units
from tests.loops import for_each
from tests.metrics.samples import run_of


def read(chosen=None, **scalars):
    return in_catalogue_units(run_of(scalars={name: list(map(float, values)) for name, values in scalars.items()}), chosen or {})


def values(run, name):
    return run.scalar(name).values[:, 0].round(9).tolist()


@pytest.mark.parametrize(
    ("name", "logged", "expected"),
    [
        ("mfu", [55, 56, 55], [0.55, 0.56, 0.55]),
        ("mfu", [0.55, 0.56, 0.55], [0.55, 0.56, 0.55]),
        ("mfu", [1.2, 1.3, 1.3], [1.2, 1.3, 1.3]),  # a peak that is too low, and no percent
        ("gpu_util", [0.97, 0.95, 0.96], [97, 95, 96]),
        ("gpu_util", [97, 95, 96], [97, 95, 96]),
        ("dataloader_stall_frac", [2, 3, 30], [0.02, 0.03, 0.3]),
        ("dataloader_stall_frac", [1, 1, 0.5, 1], [0.01, 0.01, 0.005, 0.01]),  # no step is all waiting
        ("grad_clip_rate", [80, 40, 3], [0.8, 0.4, 0.03]),
        ("overflow_rate", [12, 0, 0.5], [12, 0, 0.5]),
        ("overflow_rate", [0.14, 0.13, 0.14], [0.14, 0.13, 0.14]),  # nobody can tell
        ("lr_phase", [0.5, 1.0, 1.0], [50, 100, 100]),
    ],
)
def test_the_range_shows_the_unit(name, logged, expected):
    run = read(**{name: logged})
    assert values(run, name) == expected
    assert len(run.notes) == (logged != expected)


def test_one_writer_has_one_habit():
    run = read(gpu_util=[0.97, 0.95, 0.96], overflow_rate=[0.14, 0.13, 0.14])
    assert values(run, "overflow_rate") == [14, 13, 14]
    run = read(mfu=[55, 56, 55], dataloader_stall_frac=[1, 1, 0.5], overflow_rate=[0.14, 0.13, 0.14])
    assert values(run, "dataloader_stall_frac") == [0.01, 0.01, 0.005]
    assert values(run, "overflow_rate") == [0.14, 0.13, 0.14]
    assert run.units["overflow_rate"] == "percent"


def test_an_entropy_in_nats_is_held_against_the_largest_it_reached():
    run = read(moe_util_entropy=[1.6, 2.0, 1.0])
    assert values(run, "moe_util_entropy") == [0.8, 1.0, 0.5]
    assert [note.split()[0] for note in run.notes] == ["moe_util_entropy"]
    assert values(read(moe_util_entropy=[0.9, 1.0, 0.3]), "moe_util_entropy") == [0.9, 1.0, 0.3]


def test_the_user_decides():
    run = read({"overflow_rate": "fraction", "mfu": "fraction"}, overflow_rate=[0.14, 0.13, 0.14], mfu=[1.7, 1.7, 1.6])
    assert values(run, "overflow_rate") == [14, 13, 14]
    assert values(run, "mfu") == [1.7, 1.7, 1.6]
    assert [note.split()[0] for note in run.notes] == ["overflow_rate"]


@pytest.mark.parametrize("chosen", [{"loss": "percent"}, {"mfu": "per mille"}])
def test_what_is_no_share_or_no_unit_is_refused(chosen):
    with pytest.raises(UsageError):
        read(chosen, mfu=[0.5])


@for_each("name", sorted(SHARE_UNITS))
@for_each("logged", [[], [np.nan, np.nan], [0.0, 0.0, 0.0], [-1.0, np.inf]])
def test_odd_values_are_borne(name, logged):
    assert len(read(**{name: logged}).scalar(name).steps) == len(logged)


@pytest.mark.parametrize("name", sorted(SHARE_UNITS))
def test_a_share_has_the_unit_that_its_metric_explains(name):
    assert metrics()[name].unit == {"percent": "%", "fraction": "1"}[SHARE_UNITS[name]]
