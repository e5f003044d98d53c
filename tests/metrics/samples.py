"""Recordings for the tests of metrics: tables spelt out, and one random run that holds every path."""

import math
from functools import cache
from zlib import crc32

import numpy as np

from ckaudit.contract.schema.manifest import Manifest, Session, TensorFacts
from ckaudit.metrics import metrics
from ckaudit.run.column_builder import GRIDS
from ckaudit.run.run import Grids, Labels, Run
from ckaudit.run.series import Series

NAN = math.nan
TENSORS = ("wte.weight", "h.0.attn.weight", "h.0.mlp.weight", "h.1.attn.weight", "h.1.mlp.weight", "ln_f.weight")
MODULES = ("wte", "h.0", "h.0.mlp", "h.1", "h.1.mlp")
HEADS = tuple(f"h.{layer}.attn/head.{head}" for layer in (0, 1) for head in (0, 1, 2))
LAYERS = ("h.0.attn", "h.1.attn")
START = 1.7e9
RISING = ("time", "file_time", "tokens_seen", "rank_facts.heartbeat")


def table(rows, name="series", labels=None):
    """Make a series from {step: {label: value}}; a cell that is absent is not recorded."""
    labels = labels or tuple(dict.fromkeys(label for row in rows.values() for label in row))
    values = np.array([[row.get(label, NAN) for label in labels] for row in rows.values()], float).reshape(len(rows), len(labels))
    recorded = np.array([[label in row for label in labels] for row in rows.values()], bool).reshape(values.shape)
    return Series(name, "1", np.array(list(rows), np.int64), labels, values, recorded)


def column(values, *, name="x", steps=None):
    """Make a series of one label; None is not recorded."""
    steps = range(1, len(values) + 1) if steps is None else steps
    filled = np.array([NAN if value is None else value for value in values], float).reshape(-1, 1)
    recorded = np.array([value is not None for value in values], bool).reshape(-1, 1)
    return Series(name, "1", np.array(list(steps), np.int64), (name,), filled, recorded)


def run_of(sections=None, scalars=None, texts=None, grids=None, **facts):
    """Make a run of {path: {step: {label: value}}}, {name: values} and {name: {step: word}}, with facts of its manifest."""
    manifest = Manifest(schema_version="ck.run.v1", **facts) if facts else None
    tables = {path: table(rows, path) for path, rows in (sections or {}).items()}
    columns = {
        name: column(values, name=name) if isinstance(values, list) else table(values, name)
        for name, values in (scalars or {}).items()
    }
    words = {name: Labels(name, tuple(rows), tuple(rows.values())) for name, rows in (texts or {}).items()}
    found = {path: Grids(*zip(*rows, strict=True), tuple(rows.values())) for path, rows in (grids or {}).items()}
    return Run("test", manifest, sections=tables, scalars=columns, texts=words, grids=found)


def cells(series):
    """Return {(step, label): value} of the recorded cells."""
    return {
        (int(step), label): float(series.values[row, column_])
        for row, step in enumerate(series.steps)
        for column_, label in enumerate(series.labels)
        if series.recorded[row, column_]
    }


def rows_of(run, path):
    """Return {(step, label): value} of the recorded cells of a section or scalar."""
    return cells(run.sections[path] if path in run.sections else run.scalars[path])


def close(found, expected, tolerance=1e-12):
    """Tell whether two dictionaries have the same keys and nearly the same numbers, NaN being NaN."""
    return found.keys() == expected.keys() and all(
        (math.isnan(found[key]) and math.isnan(expected[key])) or math.isclose(found[key], expected[key], rel_tol=tolerance)
        for key in expected
    )


def random_run(seed=0, *, steps=130, gaps=0.1, nans=0.05):
    """Make a run that records every path and scalar that any metric reads, with gaps and NaN strewn over all of it."""
    made = _random_material(seed, steps, gaps, nans)
    facts = {name: TensorFacts(depth=int(name.split(".")[1])) if name[:2] == "h." else TensorFacts() for name in TENSORS}
    facts[TENSORS[0]] = TensorFacts(kind="other", module=MODULES[0], shape=[4, 3])
    sessions = [Session(start=START), Session(start=START + 60.0, end=START + 90.0), Session(start=START + 90.0, resumed_from=60)]
    return Run(
        "random",
        Manifest(
            schema_version="ck.run.v1",
            tensors=facts,
            clip_norm=1.0,
            vocabulary=17,
            warmup_steps=20,
            flops_per_token=1e6,
            peak_flops=1e12,
            world_size=4,
            sessions=sessions,
        ),
        checkpoint_steps=np.arange(1, steps + 1),
        sections={path: series for path, series in made.items() if "." in path and path not in GRIDS},
        grids={path: _random_grids(seed, steps, path) for path in GRIDS},
        scalars={path: series for path, series in made.items() if "." not in path},
        texts={"eval_artifact_hash/a": Labels("eval_artifact_hash/a", (1, 50, 101), ("x", "x", "y"))},
    )


@cache
def _random_material(seed, steps, gaps, nans):
    paths = sorted({path for each in metrics().values() for path in each.reads})
    # What the loss function was given is what is trained on.
    seeds = {path: crc32(path.replace("loss_function.value", "train_loss_raw").encode()) for path in paths}
    made = {path: _random_series(np.random.default_rng([seed, seeds[path]]), path, steps, gaps, nans) for path in paths}
    for series in made.values():
        series.values.flags.writeable = series.recorded.flags.writeable = series.steps.flags.writeable = False
    return made


@cache
def _random_grids(seed, steps, path):
    rng = np.random.default_rng(seed)
    places = [(step, layer) for step in range(1, steps + 1, 7) for layer in LAYERS]
    maps = [rng.dirichlet(np.ones(8), (3, 8) if path.startswith("attention") else 8) for _ in places]
    for values in maps:
        values.flags.writeable = False
    return Grids(tuple(step for step, _ in places), tuple(layer for _, layer in places), tuple(maps))


def _random_series(rng, path, steps, gaps, nans):
    labels = _labels(path)
    values = np.abs(rng.normal(2.0, 0.5, (steps, len(labels)))) + 0.1
    if path.endswith("causal"):
        values = np.repeat((rng.random((1, len(labels))) < 0.5).astype(float), steps, axis=0)
    if path.endswith(("keys", "units", "numel", "targets")):
        values = np.full_like(values, 64.0)
    if path.endswith("held_out"):
        values = np.tile([0.0, 0.0, 1.0], (steps, 1))
    if path in ("optimizer.name", "loss_function.function"):
        values = np.floor(values)  # a word's place in a list
    if path in RISING:
        values = START + np.cumsum(values, axis=0)
    if path == "val_loss":
        values += 0.1 * np.maximum(0, np.arange(steps) - steps // 2)[:, None]  # it parts from the training loss
    recorded = rng.random(values.shape) >= gaps
    recorded[0] = True
    broken = rng.random(values.shape) < nans
    broken[0] = False
    values[broken] = NAN
    values[~recorded] = NAN
    return Series(path, "1", np.arange(1, steps + 1), labels, values, recorded)


def _labels(path):
    section = path.partition(".")[0]
    if section == "attention":
        return HEADS if path.endswith("_per_head") else LAYERS
    ranks = tuple(f"rank.{rank}" for rank in range(4))
    if section == "probes":
        return ("p", "p.shifted", "q")
    if section == "moe":
        return (
            tuple(f"{layer}/expert.{index}" for layer in LAYERS for index in range(4))
            if path.endswith(("counts", "router_probability"))
            else LAYERS
        )
    terms = ("cross_entropy/5", "mse_loss/4")
    known = {
        "rank_facts": ranks,
        "loss_terms": terms,
        "weights": TENSORS,
        "gradients": TENSORS,
        "weight_deltas": TENSORS,
        "activations": MODULES,
    }
    slices = {"slice_val_loss": ("regular", "irregular", "other")}
    return known.get(section) or slices.get(path) or (path,)
