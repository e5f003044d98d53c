"""The fast decoder and the `jsonschema` package refuse the same documents: a thousand small ones, mutated at random.

As a script, `python tests/contract/test_agreement.py 10000` tries as many as one likes.
"""

import json
import sys
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

from jsonschema import Draft202012Validator

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.explain import explain
from ckaudit.contract.schema.published import schema
from ckaudit.contract.violations import UNKNOWN_WORD

VERSION = "ck.analysis.v1"
VALIDATOR = Draft202012Validator(schema(VERSION))
GRID = {"encoding": "q8", "shape": [1, 2], "min": 0.0, "max": 1.0, "data": "AP8="}
PERCENTILES = [-0.5, -0.25, -0.125, 0.0, 0.125, 0.25, 0.5]
SECTIONS: dict[str, Any] = {
    "loss": 3.25,
    "time": 1.76e9,
    "triggers": ["cadence", "manual"],
    "gradients_source": "pre_clip",
    "scalars": {"train_loss_raw": 3.25, "val_loss": "NaN"},
    "weights": {
        "a": {"shape": [2, 2], "numel": 4, "mean": 0.0, "percentiles": PERCENTILES, "tied_to": "b", "placement": "shard"},
        "b": {"histogram": {"bins": {"range": [-1.0, 1.0], "count": 2}, "counts": [2, 2]}, "sampled_grid_32x32": GRID},
    },
    "gradients": {"a": {"norm": 0.5, "min": -1.0, "max": 1.0, "std": "Infinity", "sampled_grid_32x32": [[0.0, 1.0]]}},
    "weight_deltas": {"a": {"norm": 0.5, "relative": 0.25, "moved": 0.5}},
    "activations": {"m": {"shape": [2, 4], "units": 4, "histogram": {"bins": [0.0, 1.0], "counts": [4]}, "sparsity": 0.5}},
    "attention": {
        "l": {
            "entropy_per_head": [1.0, "NaN"],
            "kind_per_head": ["uniform", "content"],
            "sampled_qk_grid_32x32_per_head": [[[1.0]], GRID],
            "sampled_qk_grid_32x32": GRID,
            "heads": 2,
            "causal": True,
        }
    },
    "optimizer": {"groups": [{"learning_rate": 0.1, "tensors": 2}], "found_inf": False, "trainable_without_optimizer": ["c"]},
    "data": {"batch_id": 4711, "input_hash": "md5:00", "token_histogram": [1, 2.5]},
    "moe": {"l": {"counts": [1, 2], "routed": 3}},
    "probes": {"p": {"loss": 1.0, "perplexity": 2.718281828}},
    "parity": {"param_diff": 0.0, "worst_tensor": "a"},
    "replay": {"identical": True, "steps": 3},
    "history": {"steps": [1, 2], "loss": [1.0, None], "batch_hash": [None, "x"], "gradient_norms": {"a": [1.0, "NaN"]}},
    "rank_facts": {"step_time": 0.5, "memory_used": 1024},
    "cost": {"ms": 1.5},
    "left_out": ["weights.*.histogram"],
}
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    3.0,
    2.5,
    -0.5,
    1e300,
    10**15,
    2**63,
    2**64,
    10**30,
    "",
    "NaN",
    "nan",
    "-Infinity",
    "Infinity",
    "x",
    "uniform",
    {},
    {"x": 1},
    {"range": [0, 1], "count": 1},
    {"encoding": "q7"},
    GRID,
    [],
    [0.5],
    [[]],
    [[0.5], [1]],
    [None],
    ["NaN"],
)


def spots(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value below the root."""
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield (*path, key)
        yield from spots(node[key], (*path, key))


def mutated(random: Random) -> dict[str, Any]:
    """Return a document of a few sections with up to three changes: another value, length, name or order."""
    chosen = random.sample(sorted(SECTIONS), random.randint(1, 3))
    document = deepcopy({"schema_version": VERSION, "step": 500} | {name: SECTIONS[name] for name in chosen})
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        *above, last = random.choice(list(spots(document)))
        parent: Any = document
        for key in above:
            parent = parent[key]
        change(random, parent, last)
        if not document:
            break
    return document


def change(random: Random, parent: Any, last: Any) -> None:
    kind = random.randrange(6)
    if kind <= 2:
        parent[last] = deepcopy(random.choice(VALUES))
    elif kind == 3:
        del parent[last]
    elif kind == 4 and isinstance(parent, dict):
        parent[random.choice(["renamed", "mean", "steps", str(last).upper()])] = parent.pop(last)
    elif isinstance(parent, list):
        parent.append(deepcopy(random.choice([*VALUES, *parent])))
    elif isinstance(parent[last], (int, float)):
        parent[last] = -parent[last]
    else:
        parent[last] = [parent[last]]


def disagreements(count: int, seed: int) -> tuple[list[str], int]:
    """Return the documents that only one of the two refuses, and how many both refuse."""
    random = Random(seed)
    wrong, refused = [], 0
    for _ in range(count):
        document = mutated(random)
        data = json.dumps(document).encode()
        valid = VALIDATOR.is_valid(document)
        refused += not valid
        checked = check_checkpoint(data, "x.json")
        accepted = checked.document is not None and all(each.code != UNKNOWN_WORD.code for each in checked.findings)
        if accepted != valid or bool(explain(data, "x.json", VERSION).findings) == valid:
            wrong.append(data.decode())
    return wrong, refused


def test_decoder_and_jsonschema_agree_on_mutated_documents():
    wrong, refused = disagreements(1000, seed=20)
    assert wrong == []
    assert 300 < refused < 900


def test_the_whole_document_is_valid_for_both():
    document = {"schema_version": VERSION, "step": 500} | SECTIONS
    assert VALIDATOR.is_valid(document)
    assert check_checkpoint(json.dumps(document).encode(), "x.json").document is not None


if __name__ == "__main__":
    found, both = disagreements(int(sys.argv[1]), seed=1)
    print(*found, f"{both} of {sys.argv[1]} refused by both, {len(found)} disagreements", sep="\n")  # noqa: T201
    sys.exit(bool(found))
