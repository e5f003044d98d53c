"""The experiments are all there, and a page shows what was recorded."""

import re

import numpy as np
import pytest
from msgspec.structs import replace

from ckaudit.lab import curriculum
from ckaudit.lab.change import Change
from ckaudit.lab.curriculum import change_text, chosen, is_map, side_by_side
from ckaudit.lab.specs import experiments
from ckaudit.metrics import metrics
from ckaudit.run.series import Series
from tests.lab.trained import SHORT, column


def series(labels, values):
    values = np.array(values, float)
    return Series("x", "1", np.arange(len(values)), tuple(labels), values, np.ones(values.shape, bool))


def test_there_are_twelve_experiments_and_they_look_at_metrics_that_exist() -> None:
    found = experiments().values()
    assert [each.id for each in found] == [f"EXP-{number}" for number in range(1, 13)]
    looks = {look.partition("/")[0] for each in found for look in each.look if not is_map(look)}
    assert looks <= metrics().keys()
    assert all(len(each.arms) > 1 for each in found)


def test_no_arm_trains_as_another_does() -> None:
    plan = curriculum.short("gpt")
    for each in experiments().values():
        made = {(type(change), change.onset, change.strength, repr(change.plan(plan))) for change in each.arms.values()}
        assert len(made) == len(each.arms)


def test_of_many_blocks_every_so_many_are_shown_and_of_many_tensors_the_ends() -> None:
    blocks = series([f"block.{index}" for index in range(28)], [range(28)])
    assert [blocks.labels[column] for column in chosen(blocks, "", max_columns=4)] == [
        "block.0",
        "block.9",
        "block.18",
        "block.27",
    ]
    tensors = series([f"{letter}.w" for letter in "abcdefgh"], [[9] * 8, [3, 1, 7, 2, 8, 6, 5, 4]])
    assert [tensors.labels[column] for column in chosen(tensors, "", max_columns=4)] == ["e.w", "c.w", "d.w", "b.w"]
    assert [tensors.labels[column] for column in chosen(tensors, "[ab].*")] == ["a.w", "b.w"]


def test_maps_are_drawn_in_shades_of_the_root() -> None:
    heads = np.array([[[1.0, 0.0], [0.25, 0.25]], [[0.0, 0.0], [0.0, 4.0]]])
    assert side_by_side(heads) == ["@  |", "== |  @"]
    assert side_by_side(np.ones((1, 32, 32)), size=16) == ["@" * 16] * 16


def test_a_change_is_said_with_its_numbers() -> None:
    assert change_text(Change()) == "nothing"
    arms = experiments()["enlarged_weights"].arms
    assert change_text(arms["x5, clipped"]) == "The matrices of all blocks are multiplied by 5 after step 75."


@pytest.mark.torch
def test_a_page_shows_what_each_training_recorded_and_what_the_audit_says(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(curriculum, "short", lambda _: replace(SHORT, stop=10))
    study, other = curriculum.studies([experiments()["zeroed_projection"], experiments()["movement_ranking"]], tmp_path)
    assert study.arms[0].folder == other.arms[0].folder == tmp_path / "healthy" / "gpt"
    text = (tmp_path / "zeroed_projection.md").read_text()
    assert text.startswith("# EXP-4: One projection is cut off")
    for arm in study.arms:
        assert f"| {arm.name} | {arm.report.severity or 'none'} | {arm.report.verdict} |" in text
        first = column(arm.folder, "train_loss_raw")[0]
        assert re.search(rf"\| {arm.name} \| {first:.4g} ", text)
    assert "| cut off for good | blocks.1.attn.q.weight | 0 |" in text


@pytest.mark.torch
def test_experiments_come_together_in_one_folder_and_share_the_healthy_training(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(curriculum, "short", lambda _: replace(SHORT, stop=5))
    first, second = experiments()["zeroed_projection"], experiments()["movement_ranking"]
    assert curriculum.blocking_path([first], tmp_path) is None
    [*curriculum.studies([first], tmp_path)]
    healthy = tmp_path / "healthy" / "gpt"
    before = (healthy / "run.json").read_bytes()
    assert curriculum.blocking_path([second], tmp_path) is None
    [*curriculum.studies([second], tmp_path)]
    assert (healthy / "run.json").read_bytes() == before
    assert {path.name for path in tmp_path.glob("*.md")} == {"zeroed_projection.md", "movement_ranking.md"}
    assert curriculum.blocking_path([second], tmp_path) == tmp_path / "movement_ranking"


def test_what_others_wrote_and_a_healthy_training_that_was_broken_off_are_in_the_way(tmp_path) -> None:
    experiment = experiments()["zeroed_projection"]
    healthy = tmp_path / "healthy" / "gpt"
    healthy.mkdir(parents=True)
    (healthy / "scalars.jsonl").write_text('{"step": 1, "train_loss_raw": 2.0}\n')
    assert curriculum.blocking_path([experiment], tmp_path) == healthy
    (healthy / "run.json").write_text('{"schema_version": "ck.run.v1", "sessions": [{"start": 1.0}]}')
    assert curriculum.blocking_path([experiment], tmp_path) == healthy
    (healthy / "run.json").write_text('{"schema_version": "ck.run.v1", "sessions": [{"start": 1.0, "end": 2.0}]}')
    assert curriculum.blocking_path([experiment], tmp_path) is None
    (tmp_path / "thesis.txt").touch()
    assert curriculum.blocking_path([experiment], tmp_path) == tmp_path / "thesis.txt"
