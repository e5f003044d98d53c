"""How large a checkpoint of a model shaped like Qwen3-0.6B is, and how much each field contributes.

    python benchmarks/size.py [--real] [--write]

Nothing is trained: weights, gradients and outputs are random. With `--real` every tensor is drawn in its full size, one
after the other (3 GB of memory, two minutes); otherwise 4,096 elements of each represent all of them. `--write` puts the
tables into benchmarks/README.md.
"""

import argparse
import copy
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "floors"), str(HERE.parent / "fixtures")]

from checkpoints.qwen import LAYERS, OBSERVED, TENSORS, checkpoint, grids_in, history  # noqa: E402  stands beside the fixtures
from pairs import machine, write_table  # noqa: E402
from size_floor import floor  # noqa: E402

from ckaudit.contract.budget import apply_plan, plan  # noqa: E402
from ckaudit.contract.io.codec import encode  # noqa: E402
from ckaudit.contract.schema.checkpoint import Checkpoint  # noqa: E402  after the path is known

SUFFIXES = (".json", ".json.zst")
GRID, QK_GRID = "sampled_grid_32x32", "sampled_qk_grid_32x32_per_head"
GRIDDED = ("weights", "gradients", "attention")
SECTIONS = ("weights", "gradients", "weight_deltas", "activations", "attention")
ORDINAL = 7


def written(whole: Checkpoint, budget_kb: float | None, suffix: str, ordinal: int = ORDINAL) -> Checkpoint:
    """Return a checkpoint as the recorder would write it."""
    document = copy.deepcopy(whole)
    apply_plan(document, plan(TENSORS, LAYERS, OBSERVED, ordinal, budget_kb, suffix=suffix), TENSORS, LAYERS)
    return document


def bare(whole: Checkpoint, *sections: str) -> Checkpoint:
    """Return a checkpoint without the grids of some sections."""
    document = copy.deepcopy(whole)
    for section in sections:
        for stats in getattr(document, section).values():
            setattr(stats, QK_GRID if section == "attention" else GRID, UNSET)
    return document


def totals(whole: Checkpoint) -> Iterator[str]:
    """Yield a row for each budget and each compression."""
    for title, document in (
        ("no budget: all statistics and all grids", whole),
        ("the same without grids of gradients", bare(whole, "gradients")),
        ("the same without any grid", bare(whole, *GRIDDED)),
        ("no budget, after an event: with the black box", replace(whole, history=history())),
    ):
        plain, packed = (len(encode(document, suffix)) for suffix in SUFFIXES)
        yield f"| {title} | {plain:,} | {packed:,} | {grids_in(document)} | nothing |"
    for suffix in SUFFIXES:
        for ordinal in (0, 1, 7):
            document = written(whole, 200, suffix, ordinal)
            size = f"{len(encode(document, suffix)):,}"
            cells = (size, "") if suffix == ".json" else ("", size)
            yield (
                f"| 200 KB, checkpoint {ordinal} of the cadence | {cells[0]} | {cells[1]} | {grids_in(document)} "
                f"| {_lost(document.left_out or [])} |"
            )


def _lost(paths: Sequence[str]) -> str:
    """Return what is missing for some layers."""
    words = {"mean": "moments", "percentiles": "percentiles", "histogram": "histograms", "32": "grids"}
    found = [word for part, word in words.items() if any(part in path.rpartition(".")[2] for path in paths)]
    return f"{', '.join(found)} of other layers" if found else "nothing"


def arithmetic(whole: Checkpoint) -> Iterator[str]:
    """Yield rows on the parts of a plain-text checkpoint of all statistics without a grid."""
    document = bare(whole, *GRIDDED)
    text = encode(document).decode()
    names = sum(len(name) + 6 for section in SECTIONS for name in getattr(document, section))
    keys = sum(map(len, re.findall(r'"[a-z0-9_]+":', text)))
    columns = [_columns(getattr(document, section)) for section in SECTIONS]
    listed = sum(len(name) + 3 for section in ("weights", "activations", "attention") for name in getattr(document, section))
    table = sum(len(msgspec.json.encode(column)) for column in columns) + listed
    yield f"| all statistics, no grid | {len(text):,} |"
    yield f"| of it names of tensors, modules and layers, with quotes and braces | {names:,} |"
    yield f"| of it names of fields, with quotes and colons | {keys:,} |"
    yield f"| of it numbers and words, with commas and brackets | {len(text) - names - keys:,} |"
    yield f"| the same as a table: each name and each field once, a constant column once | {table:,} |"
    yield f"| twelve grids of 32x32 bytes, in base64 | {12 * 1366:,} |"
    for title, first in (("all statistics", False), ("the statistics of the contract's first sketch", True)):
        yield f"| floor program: {title}, 4 digits, nothing repeated, twelve grids | {floor(document, first_sketch=first):,} |"


def _columns(section: Mapping[str, Struct]) -> dict[str, Any]:
    """Return a section as columns, with the bins of histograms as their two ends."""
    made: dict[str, Any] = {}
    for name in next(iter(section.values())).__struct_fields__:
        column = [getattr(stats, name) for stats in section.values()]
        if name == "histogram":
            made |= {"range": [each.bins.range for each in column], "counts": [each.counts for each in column]}
        elif any(each is not UNSET for each in column):
            plain = [None if each is UNSET else each for each in column]
            made[name] = plain[0] if all(each == plain[0] for each in plain) else plain
    return made


def fields(documents: Sequence[tuple[Checkpoint, str]]) -> Iterator[str]:
    """Yield a row for each field: by how many bytes each file shrinks without it."""
    sizes = [len(encode(*pair)) for pair in documents]
    for section in SECTIONS:
        entries = [getattr(document, section) for document, _ in documents]
        names = next(iter(entries[0].values())).__struct_fields__
        for name in names:
            if any(getattr(stats, name) is not UNSET for entry in entries for stats in entry.values()):
                lighter = [_without(document, section, name) for document, _ in documents]
                yield _row(f"{section}.*.{name}", documents, lighter, sizes)
        bare = [_named_only(document, section) for document, _ in documents]
        gone = [replace(document, **{section: UNSET}) for document, _ in documents]
        yield _row(f"{section}: names", [*zip(bare, SUFFIXES * 2, strict=False)], gone, _sizes(bare, documents))
    whole = [replace(document, **dict.fromkeys(SECTIONS, UNSET)) for document, _ in documents]
    yield "| everything else | " + " | ".join(f"{size:,}" for size in _sizes(whole, documents)) + " |"
    yield "| **all** | " + " | ".join(f"**{size:,}**" for size in sizes) + " |"


def _sizes(changed: Sequence[Checkpoint], documents: Sequence[tuple[Checkpoint, str]]) -> list[int]:
    return [len(encode(document, suffix)) for document, (_, suffix) in zip(changed, documents, strict=True)]


def _row(title: str, documents: Sequence[tuple[Checkpoint, str]], lighter: Sequence[Checkpoint], sizes: Sequence[int]) -> str:
    cells = [f"{size - less:,}" for size, less in zip(sizes, _sizes(lighter, documents), strict=True)]
    return f"| {title} | " + " | ".join(cells) + " |"


def _without(document: Checkpoint, section: str, field: str) -> Checkpoint:
    entries = {name: replace(stats, **{field: UNSET}) for name, stats in getattr(document, section).items()}
    return replace(document, **{section: entries})


def _named_only(document: Checkpoint, section: str) -> Checkpoint:
    entries = {name: type(stats)() for name, stats in getattr(document, section).items()}
    return replace(document, **{section: entries})


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", action="store_true", help="draw every tensor in its full size")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    wanted = parser.parse_args()
    whole = checkpoint(drawn=None if wanted.real else 4096)
    without = bare(whole, *GRIDDED)
    documents = [(without, suffix) for suffix in SUFFIXES] + [(written(whole, 200, suffix), suffix) for suffix in SUFFIXES]
    table = "\n".join(
        [
            f"{machine()}; tensors {'of full size' if wanted.real else 'of 4,096 drawn elements'}; bytes.",
            "",
            "| what | .json | .json.zst | grids | left out |\n|---|---|---|---|---|",
            *totals(whole),
            "",
            "| plain text | bytes |\n|---|---|",
            *arithmetic(whole),
            "",
            "| a file is smaller without | .json, no grids | .json.zst, no grids | .json, 200 KB | .json.zst, 200 KB |",
            "|---" * 5 + "|",
            *fields(documents),
        ]
    )
    print(table)
    if wanted.write:
        write_table("size", table)


if __name__ == "__main__":
    main()
