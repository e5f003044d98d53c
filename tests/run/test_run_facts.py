import numpy as np

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.run.run_facts import planned_range, planned_rate, seams

PLAN = Manifest(schema_version="ck.run.v1", planned_learning_rate=[[10.0, 1.0], [1.0, 0.1], [20.0, 0.0]])


def test_the_plan_is_linear_between_its_points_and_flat_beyond():
    assert planned_rate(PLAN, np.array([0, 1, 10, 15, 20, 99])).tolist() == [0.1, 0.1, 1.0, 0.5, 0.0, 0.0]


def test_the_range_of_a_step_is_that_of_the_points_around_it():
    low, high = planned_range(PLAN, np.array([0, 5, 10, 15, 99]))
    assert low.tolist() == [0.1, 0.1, 1.0, 0.0, 0.0]
    assert high.tolist() == [0.1, 1.0, 1.0, 1.0, 0.0]


def test_without_a_plan_there_is_none():
    assert planned_rate(None, np.array([1])) is None
    assert planned_range(Manifest(schema_version="ck.run.v1"), np.array([1])) is None
    assert planned_rate(Manifest(schema_version="ck.run.v1", planned_learning_rate=[["NaN", 1.0]]), np.array([1])) is None


def test_seams_are_where_later_sessions_began():
    sessions = [Session(start=1.0, resumed_from=7), Session(start=2.0, resumed_from=50), Session(start=3.0)]
    assert seams(Manifest(schema_version="ck.run.v1", sessions=sessions)) == [50]
    assert seams(Manifest(schema_version="ck.run.v1")) == []
