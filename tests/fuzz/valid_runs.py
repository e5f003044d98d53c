"""Run folders that keep the contract, with any values: documents grown from the contract's own types, logs from curves."""

import json
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.scalars import NAMES

NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.5, 1e-8, 1e-300, 5e-324, 1e16, 1e154, 1e155, 1e308, -1e308, 1.7976931348623157e308, -3.5)
WORDS = ("NaN", "Infinity", "-Infinity")
COUNTS = (0, 1, 2, 3, 32, 4096, 2**31, 2**53 + 1, 2**63 - 1)
TENSORS = ("blocks.0.attn.q.weight", "blocks.1.attn.q.weight", "blocks.0.mlp.up.weight", "embed.weight", "norm.weight", "x")
LABELS = ("regular", "irregular", "a", "b/c", "blocks.0", "0")
OFTEN = ("train_loss_raw", "val_loss", "grad_global_norm", "learning_rate", "step_time", "tokens_per_sec", "tokens_seen")
CURVES = ("constant", "falls", "rises", "any", "two", "spike", "tiny", "huge")


@dataclass(frozen=True)
class Plan:
    """What a run is grown from; everything else follows from the seed.

    Attributes:
        seed: Chooses names, curves and values.
        points: Lines of the log.
        checkpoints: Documents.
        gap: Steps between two lines.
        start: The first step.
        names: Names in the log.
        manifest: Whether there is a run.json.
        words: Whether numbers may be words.
    """

    seed: int
    points: int
    checkpoints: int
    gap: int
    start: int
    names: int
    manifest: bool
    words: bool


def plans(most_points: int = 60) -> st.SearchStrategy[Plan]:
    """Return the strategy of plans; small ones come first, and failures shrink to them."""
    return st.builds(
        Plan,
        seed=st.integers(0, 2**32),
        points=st.sampled_from([0, 1, 2, 3, 5, 12, 30, most_points]),
        checkpoints=st.sampled_from([0, 0, 1, 2, 6]),
        gap=st.sampled_from([1, 1, 10, 10**12]),
        start=st.sampled_from([0, 1, 1000]),
        names=st.integers(1, 24),
        manifest=st.booleans(),
        words=st.booleans(),
    )


def write(plan: Plan, folder: Path) -> None:
    """Write the run of a plan into a folder that is there."""
    grow = _Growth(Random(plan.seed), words=plan.words)
    if plan.manifest:
        document = grow.value(_type(Manifest)) | {"schema_version": "ck.run.v1"}
        (folder / "run.json").write_text(json.dumps(document))
    lines = grow.log(plan)
    if lines:
        (folder / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in dict.fromkeys(plan.start + number * plan.gap for number in range(plan.checkpoints)):
        document = grow.value(_type(Checkpoint)) | {"schema_version": "ck.analysis.v1", "step": step}
        document.pop("rank", None)
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))


@cache
def _type(of: Any) -> inspect.Type:
    return inspect.type_info(of)


class _Growth:
    """Makes values of any type of the contract."""

    def __init__(self, random: Random, *, words: bool) -> None:
        self.random, self.words = random, words
        self.pool = random.sample(NUMBERS, random.randint(1, 5))
        self.density = random.choice([0.15, 0.5, 0.95])

    def number(self, kind: Any) -> float | int:
        low, high = getattr(kind, "ge", None), getattr(kind, "le", None)
        below, above = getattr(kind, "lt", None), getattr(kind, "gt", None)
        choices = COUNTS if isinstance(kind, inspect.IntType) else self.pool if self.random.random() < 0.8 else NUMBERS
        fitting = [
            value
            for value in choices
            if (low is None or value >= low)
            and (high is None or value <= high)
            and (below is None or value < below)
            and (above is None or value > above)
        ]
        middle = next(bound for bound in (low, high, above, 1) if bound is not None)
        value = self.random.choice(fitting) if fitting else (middle + 1 if middle is above and above is not None else middle)
        return int(value) if isinstance(kind, inspect.IntType) else float(value)

    def value(self, kind: Any, depth: int = 0) -> Any:
        if isinstance(kind, inspect.Metadata):
            return self.value(kind.type, depth)
        if isinstance(kind, inspect.UnionType):
            return self.value(self._member(kind), depth)
        if isinstance(kind, inspect.StructType):
            wanted = [field for field in kind.fields if field.required or self.random.random() < self.density]
            return {field.encode_name: self.value(field.type, depth + 1) for field in wanted}
        if isinstance(kind, inspect.DictType):
            names = self.random.sample(TENSORS, self.random.randint(0, 4))
            return {name: self.value(kind.value_type, depth + 1) for name in names}
        if isinstance(kind, inspect.ListType | inspect.VarTupleType):
            least = kind.min_length or 0
            count = self.random.randint(least, max(least, min(kind.max_length or 9, 9 if depth < 4 else 3)))
            return [self.value(kind.item_type, depth + 1) for _ in range(count)]
        if isinstance(kind, inspect.TupleType):
            return [self.value(item, depth + 1) for item in kind.item_types]
        return self._plain(kind)

    def _member(self, kind: inspect.UnionType) -> Any:
        members = [each for each in kind.types if not isinstance(each, inspect.CustomType)]
        members = [each for each in members if "Unset" not in repr(each)] or members
        if not self.words and any(isinstance(each, inspect.FloatType) for each in members):
            members = [each for each in members if not isinstance(each, inspect.LiteralType)] or members
        return self.random.choice(members)

    def _plain(self, kind: Any) -> Any:
        if isinstance(kind, inspect.IntType | inspect.FloatType):
            return self.number(kind)
        if isinstance(kind, inspect.BoolType):
            return self.random.random() < 0.5
        if isinstance(kind, inspect.LiteralType):
            return self.random.choice(kind.values)
        if isinstance(kind, inspect.NoneType):
            return None
        if isinstance(kind, inspect.StrType):
            return self.random.choice(["a", "", "sha256:00ff", "blocks.0.attn.q.weight", "é", "AAAA"])
        return self.random.choice([1, "a", None, True, 2.5])

    def log(self, plan: Plan) -> list[dict[str, Any]]:
        names = list(dict.fromkeys([*self.random.sample(OFTEN, min(plan.names, 4)), *self._names(plan.names)]))[: plan.names]
        curves = {name: self._curve(plan.points) for name in names}
        lines = []
        for row in range(plan.points):
            line: dict[str, Any] = {"step": plan.start + row * plan.gap}
            if self.density > 0.2:
                line["time"] = 1.7e9 + row
            line |= {name: curve[row] for name, curve in curves.items() if self.random.random() < self.density or row < 1}
            lines.append(line)
        return lines

    def _names(self, count: int) -> list[str]:
        families = self.random.sample(sorted(NAMES - {"step", "session", "time"}), count)
        return [f"{name}/{self.random.choice(LABELS)}" if self.random.random() < 0.25 else name for name in families]

    def _curve(self, points: int) -> list[Any]:
        kind, base = self.random.choice(CURVES), self.random.choice(self.pool)
        steep = self.random.choice([1e-3, 0.1, 1.0, 1e300])
        made = {
            "constant": lambda row: base,
            "falls": lambda row: base - steep * row,
            "rises": lambda row: base + steep * row,
            "any": lambda row: self.random.choice(self.pool),
            "two": lambda row: self.pool[row % len(self.pool)],
            "spike": lambda row: base if row != points // 2 else self.random.choice(NUMBERS),
            "tiny": lambda row: self.random.random() * 1e-308,
            "huge": lambda row: self.random.uniform(-1, 1) * 1.7e308,
        }[kind]
        cells = [made(row) for row in range(points)]
        share = 0.1 if self.words and self.random.random() < 0.3 else 0.0
        return [self.random.choice(WORDS) if not isfinite(cell) or self.random.random() < share else cell for cell in cells]


def as_document(path: Path) -> Any:
    """Return a document as the contract reads it, which raises where it does not keep its types."""
    return msgspec.json.decode(path.read_bytes(), type=Manifest if path.name == "run.json" else Checkpoint)
