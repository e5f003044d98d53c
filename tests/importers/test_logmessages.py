"""Printed lines that a container or a collector of logs wrapped in JSON objects."""

import json

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import ImportOptions, import_source
from ckaudit.importers.importer import rows_of

LOSSES = [2.31, 2.02, 1.8, 1.66, 1.5]


def docker(text):
    return {"log": f"{text}\n", "stream": "stdout", "time": "2026-01-15T10:30:00.123Z"}


def logger(text):
    return {"level": "INFO", "message": text, "timestamp": "2026-01-15 10:30:00"}


def cloud(text):
    return {"severity": "DEFAULT", "textPayload": text, "insertId": "a1", "labels": {"job": "7"}}


def fluent(text):
    return {"log": text, "kubernetes": {"pod_name": "trainer-0"}}


@pytest.fixture
def read(tmp_path):
    def read_lines(lines, name="app.log", **options):
        path = tmp_path / name
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8")
        return import_source(path, import_options=ImportOptions(**options))

    return read_lines


@pytest.mark.parametrize("wrap", [docker, logger, cloud, fluent])
@pytest.mark.parametrize("name", ["app.log", "container-json.jsonl"])
def test_the_texts_are_read_as_the_log_that_they_are(read, wrap, name):
    printed = [f"epoch {place} loss {loss}" for place, loss in enumerate(LOSSES, 1)]
    run = read([wrap(text) for text in ["Starting", *printed, "Done"]], name)
    assert [row["train_loss_raw"] for row in rows_of(run.table)] == LOSSES
    assert run.source == "epoch text log"
    assert run.notes[0].startswith("its lines are the member ")


def test_parts_of_a_long_line_are_put_together(read):
    lines = [docker(f"step {place}: loss {loss}") for place, loss in enumerate(LOSSES, 1)]
    first, rest = {**lines[2], "log": "step 3: lo"}, {**lines[2], "log": "ss 1.8\n"}
    run = read([*lines[:2], first, rest, *lines[3:]])
    assert [row["train_loss_raw"] for row in rows_of(run.table)] == LOSSES


def test_a_line_that_is_no_object_stays_a_line(read):
    lines = [logger(f"step {place}: loss {loss}") for place, loss in enumerate(LOSSES, 1)]
    run = read([*lines, "step 6: loss 1.4", *map(logger, ["step 7: loss 1.3"])])
    assert [row["train_loss_raw"] for row in rows_of(run.table)] == [*LOSSES, 1.4, 1.3]


def test_returns_of_episodes_are_read_too(read):
    run = read([logger(f"Episode {place} reward {-20.5 + place}") for place in range(1, 9)])
    assert [row["microbench_score/episode_reward"] for row in rows_of(run.table)] == [-20.5 + place for place in range(1, 9)]


def test_values_beside_the_text_are_json_lines(read):
    run = read([{"message": "Epoch complete", "epoch": place, "loss": loss} for place, loss in enumerate(LOSSES, 1)])
    assert run.source == "JSON lines"
    assert [row["train_loss_raw"] for row in rows_of(run.table)] == LOSSES


def test_messages_that_tell_of_no_training_are_no_log(read):
    with pytest.raises(UnreadableError):
        read([logger(f"GET /index.html 200 {place}") for place in range(9)])


def test_asked_for_by_name_a_file_without_texts_says_what_was_expected(read):
    with pytest.raises(UnreadableError, match="log messages in JSON"):
        read([{"a": 1}, {"a": 2}, {"a": 3}], format="logmessages")
