"""Case files: small recordings written in TOML, turned to runs, with the verdict they must get.

    [[case]]
    name = "first block starves from step 200"
    expect = [{ severity = "sev2", where = "block.0", first = 200, last = 300 }]
    sections."gradients.*.norm" = { steps = [100, 200], labels = ["blocks.0.w", "blocks.1.w"], values = [[0.5, 1], [1e-3, 1]] }
    scalars.train_loss_raw = { steps = "1..300", value = 2.0, noise = 0.01, set = { 200 = 9.0 } }
    facts = { clip_norm = 1.0 }
    texts."eval_artifact_hash/tokenizer" = { steps = [100, 200], values = ["a", "b"] }
    broken = { SYN005 = "analysis_checkpoint_step_00000100.json" }

`broken` names a file that is not what the contract says, by the code of the violation.
`value`, `to` and what is `set` are one number, or one for each label. In `values`, nan is recorded as NaN and "-" is not
recorded. `steps = "1..300:10"` counts by tens. `noise` is added, and `exp` of `log_noise` multiplied.
"""

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ckaudit.contract import contradictions  # noqa: F401  enters its kinds
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.violations import KINDS
from ckaudit.run.run import Grids, Labels, Run
from ckaudit.run.series import Series

KEYS = {"name", "expect", "skip", "facts", "sections", "scalars", "texts", "grids", "broken"}


@dataclass
class Case:
    """One recording, made when it is first asked for, and what is expected of it."""

    name: str
    spec: dict[str, Any]
    expect: list[dict[str, Any]]
    skip: str | None

    @cached_property
    def run(self) -> Run:
        """The recording."""
        return run_of(self.spec)


def load(path: Path) -> tuple[dict[str, Any], list[Case]]:
    """Return the head of a case file and its cases."""
    text = tomllib.loads(path.read_text(encoding="utf-8"))
    cases = text.pop("case")
    for case in cases:
        assert case.keys() <= KEYS, f"{path.name}, {case['name']}: {case.keys() - KEYS}"
    return text, [Case(case["name"], case, case.get("expect", []), case.get("skip")) for case in cases]


def run_of(case: dict[str, Any]) -> Run:
    """Return the run that a case describes."""
    facts = case.get("facts")
    manifest = None if facts is None else msgspec.convert({"schema_version": "ck.run.v1", **facts}, Manifest)
    sections = {path: series_of(path, spec) for path, spec in case.get("sections", {}).items()}
    scalars = {name: series_of(name, spec) for name, spec in case.get("scalars", {}).items()}
    texts = {name: Labels(name, tuple(spec["steps"]), tuple(spec["values"])) for name, spec in case.get("texts", {}).items()}
    steps = sorted({int(step) for series in sections.values() for step in series.steps})
    return Run(
        name=case["name"],
        manifest=manifest,
        checkpoint_steps=np.array(steps, np.int64),
        sections=sections,
        grids={path: grids_of(spec) for path, spec in case.get("grids", {}).items()},
        scalars=scalars,
        texts=texts,
        findings=tuple(KINDS[code].at(file, KINDS[code].title) for code, file in case.get("broken", {}).items()),
    )


def grids_of(spec: dict[str, Any]) -> Grids:
    """Return sampled matrices: for each step, one of each label."""
    rows = [
        (step, label, values)
        for step, row in zip(spec["steps"], spec["values"], strict=True)
        for label, values in zip(spec["labels"], row, strict=True)
    ]
    steps, labels, values = zip(*rows, strict=True)
    return Grids(steps, labels, tuple(map(np.array, values)))


def series_of(name: str, spec: dict[str, Any]) -> Series:
    """Return the series that a case spells out."""
    steps = np.array(list(_steps(spec["steps"])), np.int64)
    labels = tuple(spec.get("labels", [name]))
    if "values" in spec:
        rows = [row if isinstance(row, list) else [row] for row in spec["values"]]
        cells = [[np.nan if cell == "-" else float(cell) for cell in row] for row in rows]
        recorded = np.array([[cell != "-" for cell in row] for row in rows])
        return Series(name, "1", steps, labels, np.array(cells), recorded)
    noise = np.random.default_rng(spec.get("seed", 0)).normal(0, spec.get("noise", 0.0), (len(steps), len(labels)))
    values = np.linspace(spec["value"], spec.get("to", spec["value"]), len(steps)).reshape(len(steps), -1) + noise
    if "log_noise" in spec:
        values *= np.exp(np.random.default_rng(spec.get("seed", 0)).normal(0, spec["log_noise"], values.shape))
    for step, value in spec.get("set", {}).items():
        first, _, last = step.partition("..")
        values[(steps >= int(first)) & (steps <= int(last or first))] = value
    return Series(name, "1", steps, labels, values, np.ones(values.shape, bool))


def _steps(spec: str | list[int]) -> list[int] | range:
    if isinstance(spec, list):
        return spec
    ends, _, every = spec.partition(":")
    first, _, last = ends.partition("..")
    return range(int(first), int(last) + 1, int(every or 1))
