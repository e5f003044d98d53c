"""Episodes that Gym's Monitor writes, and tables that only look like its files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported

Import = Callable[..., Imported]
START = '#{"t_start": 1758883056.7693052, "env_id": "BipedalWalker-v3"}\n'
RETURN = "microbench_score/episode_return"


def monitor(*rows: str, start: str = START, header: str = "r,l,t") -> str:
    return "".join([start, *(f"{line}\n" for line in (header, *rows))])


def returns(run: Imported, name: str = RETURN) -> list[tuple[float | str, float | str]]:
    return [(row["step"], row[name]) for row in run.rows]


@pytest.mark.parametrize("start", [START, '# {"env_id": null, "t_start": 1.5, "gym_version": "0.9.1"}\r\n'])
def test_a_row_is_an_episode_at_the_steps_of_the_environment_so_far(imported: Import, start: str) -> None:
    run = imported(monitor("-106.05,82,0.48", "-106.31,66,0.76", "12.5,1600,1.23", start=start), "monitor.csv")
    assert run.source == "Gym Monitor"
    assert returns(run) == [(82, -106.05), (148, -106.31), (1748, 12.5)]
    assert any("the sum of l so far" in note for note in run.notes)
    assert any("left out, because no common name says what they are: t" in note for note in run.notes)


def test_further_columns_may_hold_anything(imported: Import) -> None:
    header = "r,l,t,is_success,decisions,val_loss"
    rows = ("43.8,28,81.1,True,\"['A', 'B']\",2.5", "77.6,17,154.9,False,\"['A', 'C', 'B']\",1.5")
    run = imported(monitor(*rows, header=header), "0.monitor.csv")
    assert returns(run) == [(28, 43.8), (45, 77.6)]
    assert [row["val_loss"] for row in run.rows] == [2.5, 1.5]


def test_an_episode_without_a_whole_length_ends_at_no_step(imported: Import) -> None:
    run = imported(monitor("1,10,0.1", "2,,0.2", "3,x,0.3", "4,-5,0.4", "5,1e300,0.5", "6,10.5,0.6", "7,10,0.7"), "monitor.csv")
    assert returns(run) == [(10, 1.0), (20, 7.0)]
    assert any("5 rows have no whole step" in note for note in run.notes)


def test_a_return_that_is_no_number_is_kept(imported: Import) -> None:
    values = dict(returns(imported(monitor("1,10,0.1", "nan,10,0.2", "3,10,0.3", "4,10,0.4", "5,10,0.5"), "monitor.csv")))
    assert [step for step, value in values.items() if value != value] == [20]


def test_columns_that_the_user_names_go_before_its_own(imported: Import) -> None:
    text = monitor("1,10,3", "2,10,6", "4,10,9")
    assert returns(imported(text, "monitor.csv", step="t")) == [(3, 1.0), (6, 2.0), (9, 4.0)]
    named = imported(text, "monitor.csv", **{"microbench_score/worth": "r"})
    assert returns(named, "microbench_score/worth") == [(10, 1.0), (20, 2.0), (30, 4.0)]
    assert named.table.names == ("microbench_score/worth",)


@pytest.mark.parametrize(
    "start", ["", '#{"env_id": "a"}\n', "#{t_start: 1}\n", "#[1, 2]\n", '#{"t_start": 1\n', f"#{'{' * 5000}\n", "# t_start\n"]
)
def test_a_table_of_such_columns_alone_is_none(imported: Import, start: str) -> None:
    with pytest.raises(UnreadableError, match="none of its columns has a name that is known: r, l, t"):
        imported(monitor("1,10,0.1", "2,10,0.2", start=start), "monitor.csv")


def test_a_table_of_others_below_the_comment_is_read_as_such(imported: Import) -> None:
    run = imported(monitor("1,10", "2,9", header="step,loss"), "log.csv")
    assert (run.source, [row["train_loss_raw"] for row in run.rows]) == ("CSV", [10.0, 9.0])


def test_a_monitor_without_an_episode_says_so(imported: Import) -> None:
    with pytest.raises(UnreadableError, match="no rows below it"):
        imported(monitor(), "monitor.csv")


def test_a_return_is_judged_alone_and_one_that_is_lost_is_found(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    gained = [2.0 * n + n % 3 for n in range(60)]
    path.write_text(monitor(*(f"{value},200,{n}" for n, value in enumerate(gained))))
    report = triage(path)
    assert (report.findings, report.judged) == ([], "limited")
    assert "in its scores, which alone could be judged" in report.verdict
    path.write_text(monitor(*(f"{value},200,{n}" for n, value in enumerate([*gained, *(-5.0 - n % 3 for n in range(40))]))))
    assert [(each.code, each.severity) for each in triage(path).findings] == [("EVAL004", "sev2")]
