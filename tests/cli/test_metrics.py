"""`ckaudit metrics` from end to end: what it prints and writes, against numbers taken from the raw files by a slow loop."""

import csv
import io
import json
import math
import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from ckaudit.audit import measure as measure_module
from ckaudit.cli.metrics import FORMATS
from ckaudit.cli.run import run
from ckaudit.contract.schema.published import schema
from ckaudit.metrics.metric import Metric, metrics
from ckaudit.reports.metric_series import DATA, write
from tests.forked import ckaudit

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"
ABSENT = "not recorded"


def documents(folder):
    """Read every checkpoint as plain JSON."""
    for path in sorted(folder.glob("analysis_checkpoint_*.json*")):
        data = path.read_bytes()
        yield json.loads(zstandard.ZstdDecompressor().decompress(data, max_output_size=2**27) if path.suffix == ".zst" else data)


@cache
def raw(folder):
    """Return {(metric, label, step): value} of some metrics, straight from the files of a run without sessions."""
    found = {}
    for line in (folder / "scalars.jsonl").read_text().splitlines():
        row = json.loads(line)
        for name in ("train_loss_raw", "learning_rate", "grad_global_norm", "val_loss"):
            if row.get(name) is not None:
                found[name, name, row["step"]] = float(row[name])
    for document in documents(folder):
        for tensor, stats in document.get("gradients", {}).items():
            if "norm" in stats:
                found["gradient_norm", tensor, document["step"]] = float(stats["norm"])
    return found


def from_csv(path):
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [
        (row["metric"], row["label"], int(row["step"]), float(row["value"]) if row["value"] else None, row["recorded"] == "true")
        for row in rows
    ]


def from_arrow(table):
    assert table.column_names == ["step", "metric", "label", "value", "recorded"]
    return [(row["metric"], row["label"], row["step"], row["value"], row["recorded"]) for row in table.to_pylist()]


def from_json(path):
    rows = []
    for metric in json.loads(path.read_text())["metrics"]:
        for label, values in zip(metric["labels"], metric["values"], strict=True):
            rows += [
                (metric["name"], label, step, None if value is None else float(value), value is not None)
                for step, value in zip(metric["steps"], values, strict=True)
            ]
    return rows


READERS = {
    "csv": from_csv,
    "json": from_json,
    "parquet": lambda path: from_arrow(pq.read_table(path)),
    "arrow": lambda path: from_arrow(pa.ipc.open_file(path).read_all()),
}
each_format = pytest.mark.parametrize("kind", READERS)


def written(tmp_path, folder, kind, *arguments, code=0):
    """Write a run's metrics and read them back: {(metric, label, step): value, or ABSENT}."""
    path = tmp_path / f"out.{kind}"
    assert run(["metrics", str(folder), *arguments, "-f", kind, "-o", str(path), "-q"]) == code
    rows = READERS[kind](path)
    for *_, value, recorded in rows:
        assert (value is None) == (not recorded)
    found = {(metric, label, step): value if recorded else ABSENT for metric, label, step, value, recorded in rows}
    assert len(found) == len(rows)
    return found


def recorded(found):
    return {key: value for key, value in found.items() if value is not ABSENT}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert [
        key for key in expected if found[key] != expected[key] and not (math.isnan(found[key]) and math.isnan(expected[key]))
    ] == []


@pytest.fixture
def folder(tmp_path):
    """A run with a tensor that is not always recorded, one that is NaN, and a loss that is infinite."""
    path = tmp_path / "run"
    path.mkdir()
    for step in (0, 100, 200, 300):
        norms = {"a,b": {"norm": step / 7}, 'q"': {"norm": "NaN" if step == 200 else 2.0}} | (
            {"c": {"norm": 9.0}} if step == 100 else {}
        )
        (path / f"analysis_checkpoint_step_{step:08d}.json").write_text(
            json.dumps({"schema_version": "ck.analysis.v1", "step": step, "gradients": norms})
        )
    lines = [{"step": step, "train_loss_raw": "Infinity" if step == 7 else 1 / step} for step in range(1, 301)]
    (path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("csv", "healthy"),
        ("csv", "nan_batch"),
        ("json", "nan_batch"),
        ("parquet", "zeroed_projection"),
        ("arrow", "zeroed_projection"),
    ],
)
def test_every_format_says_what_the_raw_files_say(tmp_path, kind, name):
    expected = raw(RUNS / name)
    found = recorded(written(tmp_path, RUNS / name, kind))
    names = {metric for metric, _, _ in expected}
    assert len(names) == 5
    assert_same({key: value for key, value in found.items() if key[0] in names}, expected)


@each_format
def test_nan_and_not_recorded_are_told_apart(tmp_path, folder, kind):
    found = written(tmp_path, folder, kind, "gradient_norm", "train_loss_raw")
    assert found["gradient_norm", "c", 200] is ABSENT
    assert math.isnan(found["gradient_norm", 'q"', 200])
    assert found["gradient_norm", "a,b", 100] == 100 / 7
    assert found["train_loss_raw", "train_loss_raw", 7] == math.inf
    assert len(found) == 300 + 4 * 3


@each_format
def test_a_later_step_is_not_known_at_an_earlier_one(tmp_path, kind):
    found = recorded(written(tmp_path, RUNS / "healthy", kind, "train_loss_raw", "gradient_norm", "--step", "120"))
    expected = {key: value for key, value in raw(RUNS / "healthy").items() if key[2] <= 120}
    assert_same(found, {key: value for key, value in expected.items() if key[0] in ("train_loss_raw", "gradient_norm")})


def test_a_stretch_is_cut_after_the_computing(tmp_path):
    whole = recorded(written(tmp_path, RUNS / "healthy", "csv", "loss_excess", "train_loss_ema"))
    part = recorded(written(tmp_path, RUNS / "healthy", "csv", "loss_excess", "train_loss_ema", "--from", "60", "--to", "70"))
    assert part == {key: value for key, value in whole.items() if 60 <= key[2] <= 70}
    assert len(part) == 22


@pytest.mark.parametrize("every", [7, 100, 1_000])
def test_of_every_k_steps_the_last_is_shown(tmp_path, every):
    whole = recorded(written(tmp_path, RUNS / "healthy", "csv", "train_loss_raw", "val_loss"))
    last = defaultdict(int)
    for metric, _, step in whole:
        last[metric, math.ceil(step / every)] = max(step, last[metric, math.ceil(step / every)])
    expected = {key: value for key, value in whole.items() if last[key[0], math.ceil(key[2] / every)] == key[2]}
    assert recorded(written(tmp_path, RUNS / "healthy", "csv", "train_loss_raw", "val_loss", "--every", str(every))) == expected


def test_json_keeps_its_contract(tmp_path, folder):
    from jsonschema import Draft202012Validator

    path = tmp_path / "out.json"
    for source in (folder, RUNS / "nan_batch"):
        run(["metrics", str(source), "-f", "json", "-o", str(path)])
        document = json.loads(path.read_text())
        Draft202012Validator(schema("ck.metrics.v1")).validate(document)
        assert {each["name"] for each in (*document["metrics"], *document["missing"])} == set(metrics())


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_units_stand_in_the_metadata(tmp_path, folder, kind):
    path = tmp_path / "out"
    run(["metrics", str(folder), "train_loss_raw", "gradient_norm", "-f", kind, "-o", str(path)])
    described = pq.read_schema(path) if kind == "parquet" else pa.ipc.open_file(path).schema
    assert json.loads(described.metadata[b"units"]) == {"gradient_norm": "1", "train_loss_raw": "nats/token"}
    assert described.field("step").type == pa.int64()
    assert described.field("value").type == pa.float64()


def test_data_go_to_standard_output_and_notes_beside_it(folder, capfd):
    with (folder / "scalars.jsonl").open("a") as stream:
        stream.write('{"step": 301, "tr')
    assert run(["metrics", str(folder), "train_loss_raw", "-f", "csv"]) == 0
    out, err = capfd.readouterr()
    assert len(list(csv.reader(io.StringIO(out)))) == 301
    assert err == "note: scalars.jsonl: the last line is cut off; it was left out\n"


def test_quiet_leaves_the_notes_out(folder, capfd):
    with (folder / "scalars.jsonl").open("a") as stream:
        stream.write('{"step": 301, "tr')
    for kind in ("terminal", "csv"):
        assert run(["metrics", str(folder), "train_loss_raw", "-f", kind, "-q"]) == 0
        assert "cut off" not in "".join(capfd.readouterr())


@each_format
def test_writing_tells_how_far_it_is(folder, kind):
    told = []
    found = measure_module.measure(folder)
    write(found, kind, io.BytesIO(), lambda *told_now: told.append(told_now))
    assert told[-1][0] == told[-1][1] == len(told) >= len(found.measured)


def test_only_what_the_selected_metrics_read_is_decoded(folder, capfd, monkeypatch):
    seen = []
    plain = measure_module.open_run

    def spied(path, *, reads, **rest):
        seen.append(set(reads))
        return plain(path, reads=reads, **rest)

    monkeypatch.setattr(measure_module, "open_run", spied)
    run(["metrics", str(folder), "train_loss_raw"])
    run(["metrics", str(folder), "gradient_*norm"])
    assert seen == [set(), {"gradients.*.norm", "gradients.*.nonfinite_count"}]


def test_the_formats_offered_are_those_that_are_there():
    assert ("terminal", *DATA) == FORMATS


def table(capfd, *arguments, code=0):
    assert run(["metrics", *map(str, arguments)]) == code
    return capfd.readouterr().out.splitlines()


def test_the_table_names_the_extreme_tensor_and_its_last_value(folder, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    lines = table(capfd, folder)
    assert lines[0].split() == ["metric", "last", "trend", "shape", "unit", "points", "step", "where", "of"]
    (norm,) = (line for line in lines if line.startswith("gradient_norm "))
    assert norm.split()[1] == "42.86"
    assert norm.split()[-2:] == ["a,b", "3"]
    (loss,) = (line for line in lines if line.startswith("train_loss_raw "))
    assert loss.split()[1:3] == ["0.003333", "↓"]
    assert loss.split()[-3:] == ["nats/token", "300", "300"]


def test_of_entropies_the_collapsed_head_comes_first(capfd):
    lines = table(capfd, RUNS / "lr_too_high", "attn_entropy", "normalized_attention_entropy")
    last = {line.split()[0]: line.split()[1] for line in lines[1:] if line.startswith(("attn", "norm"))}
    assert last == {"attn_entropy": "0.1666", "normalized_attention_entropy": "0.05034"}
    assert lines[2].split()[:2] == ["layer.0/head.1", "0.1666"]


def test_a_named_metric_shows_its_labels_greatest_first(folder, capfd):
    lines = table(capfd, folder, "gradient_norm", "train_loss_raw")
    assert [line.split()[0] for line in lines[1:6]] == ["gradient_norm", "a,b", "c", 'q"', "train_loss_raw"]


def test_a_value_that_is_not_finite_is_greater_than_all(folder, capfd):
    lines = table(capfd, folder, "gradient_norm", "--step", 200)
    assert lines[2].split()[:2] == ['q"', "NaN"]


def test_many_labels_are_counted_unless_all_are_asked_for(capfd):
    short, whole = (table(capfd, RUNS / "healthy", "gradient_norm", *more) for more in ((), ("--all",)))
    assert "  ... and 8 more (--all)" in short
    assert len(whole) == len(short) - 1 + 8
    assert "  blocks.2.mlp.up.weight" in "\n".join(table(capfd, RUNS / "healthy", "--all"))


def test_what_has_no_value_is_counted_and_named_with_v(folder, capfd):
    brief, full = (" ".join(table(capfd, folder, "grad*", "val_*", "train_*", *more)) for more in ((), ("-v",)))
    assert "without a value: " in brief
    assert "not recorded (-v names them)" in brief
    assert "val_loss" not in brief
    assert "val_loss" in full


def test_a_stretch_without_a_value_is_not_the_same_as_no_record(folder, capfd):
    assert "1 not in these steps" in " ".join(table(capfd, folder, "gradient_norm", "val_loss", "--from", 301, code=2))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["gradnorm"], "did you mean grad"),
        (["trainloss"], "did you mean train_loss"),
        (["zzz*"], "without a name"),
        (["--from", "9", "--to", "3"], "swap them"),
        (["--every", "0"], "--every 100"),
        (["--to", "x"], "--to 500"),
        (["--step", "-1"], "--step 500"),
        (["-f", "cvs"], "did you mean csv?"),
        (["-o", "/no/such/folder/x"], "make it first"),
        (["--step", "0", "--map", "a"], "--map loss"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(folder, capfd, arguments, hint):
    assert run(["metrics", str(folder), *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert hint in err


def test_binary_data_are_not_shown_on_a_screen(folder, capfd, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["metrics", str(folder), "-f", "parquet"]) == 2
    assert "name a file: -o FILE" in capfd.readouterr().err


def test_a_metric_that_breaks_costs_only_itself(folder, capfd, monkeypatch):
    def broken(self, run):
        if self.name == "gradient_norm":
            raise ZeroDivisionError("by zero")
        return plain(self, run)

    plain = Metric.__call__
    monkeypatch.setattr(Metric, "__call__", broken)
    assert run(["metrics", str(folder), "gradient_norm", "train_loss_raw", "-v"]) == 2
    out, err = capfd.readouterr()
    assert "train_loss_raw" in out
    assert "ZeroDivisionError: by zero" in out
    assert "gradient_norm broke" in err


def test_an_output_that_fails_leaves_nothing_behind(folder, tmp_path, capfd, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("half way")

    monkeypatch.setattr("ckaudit.reports.metric_series._csv_lines", broken)
    (tmp_path / "out").mkdir()
    assert run(["metrics", str(folder), "-f", "csv", "-o", str(tmp_path / "out" / "x.csv")]) == 2
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("fixtures/real/hf_trainer/whisper_flemish_15k", "train_loss_raw"),
        ("fixtures/real/olmo/190M-1xC.csv", "slice_val_loss"),
        ("fixtures/runs/healthy/scalars.jsonl", "grad_global_norm"),
    ],
)
def test_logs_of_other_programs_are_read_as_triage_reads_them(capfd, source, name):
    assert table(capfd, ROOT / source, name)[1].startswith(name)


def process(*arguments, **variables):
    done = ckaudit("metrics", *arguments, cwd=ROOT, **variables)
    assert done.stderr == ""
    return done.stdout


def started(*arguments, **variables):
    kept = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING")
    }
    command = [sys.executable, "-m", "ckaudit", "metrics", *map(str, arguments)]
    done = subprocess.run(
        command, env={**kept, "PYTHONPATH": str(ROOT), **variables}, cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    assert done.stderr == b""
    return done.stdout.decode()


def test_a_pipe_gets_no_colour_and_an_ascii_screen_no_other_letters(folder):
    assert "\x1b" not in process(folder)
    assert "\x1b[1;31mNaN\x1b[0m" in process(folder, "gradient_norm", "--step", "200", FORCE_COLOR="1")
    plain = started(folder, PYTHONIOENCODING="ascii", COLUMNS="70")
    assert plain.isascii()
    assert " down " in plain
    assert max(map(len, plain.splitlines())) <= 70


def test_two_processes_print_the_same_bytes(folder):
    assert process(folder, "-f", "json") == started(folder, "-f", "json")


def test_a_metric_without_tensors_is_labelled_by_its_own_name(tmp_path):
    found = written(tmp_path, RUNS / "healthy", "csv")
    labels = defaultdict(set)
    for metric, label, _ in found:
        labels[metric].add(label)
    assert labels["gradient_norm"] >= {"tokens.weight", "norm.weight"}
    alone = {metric: next(iter(names)) for metric, names in labels.items() if len(names) == 1}
    assert len(alone) > 40
    assert {metric: label for metric, label in alone.items() if metric != label} == {}


def test_steps_behind_the_end_are_not_taken_for_steps_that_were_not_recorded(folder, capfd):
    assert run(["metrics", str(folder), "gradient_norm", "val_loss", "--from", "5000"]) == 2
    err = capfd.readouterr().err
    assert "hint: gradient_norm has values in others; the run is recorded up to step 300" in err
    assert run(["metrics", str(folder), "val_loss", "--from", "5000"]) == 2
    assert "-v says what was not recorded" in capfd.readouterr().err


def test_the_help_says_which_label_is_shown_and_fits_a_screen_of_80(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["metrics", "--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "of several labels the worst: the lowest if low is bad" in " ".join(" ".join(lines).split())
