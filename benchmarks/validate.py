"""How long `ckaudit validate` takes, against an obvious implementation: whole processes, side by side.

    python benchmarks/validate.py [--rounds 5] [--files 1000] [--write]

Data are generated in a temporary folder. Two commands take turns (A B A B), and medians are compared: wall time, processor time,
largest memory. `--write` puts the table into benchmarks/README.md.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import orjson

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from checkpoints.honest import grid_heavy, key_heavy  # noqa: E402  the generator stands beside the fixtures
from pairs import Case, run  # noqa: E402

VARIANTS = 8  # number of different documents; the others repeat them with another step

PARSE = """
import os, sys, orjson
for folder in sys.argv[1:]:
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            orjson.loads(file.read())
"""
EMPTY_TYPER = "import typer\napp = typer.Typer()\n@app.command()\ndef main() -> None: ...\napp()\n"


def write_run(folder: Path, make: Callable[..., dict[str, object]], files: int, change: Callable[[bytes], bytes]) -> None:
    """Write a run of `files` checkpoints."""
    folder.mkdir()
    variants = [orjson.dumps(make(seed=seed)) for seed in range(VARIANTS)]
    for step in range(1, files + 1):
        data = variants[step % VARIANTS].replace(b'"step":500', b'"step":%d' % step, 1)
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_bytes(change(data))


def prepare(root: Path, files: int) -> None:
    """Write all runs under `root`."""
    write_run(root / "keys", key_heavy, files, lambda data: data)
    write_run(root / "grids", grid_heavy, files, lambda data: data)
    field = b'"zero_fraction":0.0'
    write_run(root / "unknown", key_heavy, files, lambda data: data.replace(field, field + b',"skewness":0.5', 1))
    write_run(root / "bare", key_heavy, files, lambda data: data.replace(field, b'"zero_fraction":NaN', 1))
    write_run(root / "hundred", key_heavy, 100, lambda data: data)
    for copy in range(10):
        shutil.copytree(root / "keys", root / f"copy{copy}", copy_function=os.link)
    (root / "empty.py").write_text(EMPTY_TYPER)


def cases(root: Path, files: int) -> list[Case]:
    """Return all comparisons."""
    here = Path(sys.executable).parent
    ours = [str(here / "ckaudit"), "validate", "--quiet"]
    strict = [str(here / "check-jsonschema"), "--schemafile", str(HERE.parent / "schemas" / "ck.analysis.v1.schema.json")]
    parse = [sys.executable, "-c", PARSE]
    hundred = sorted(map(str, (root / "hundred").iterdir()))
    many, same = f"{files:,} files of 200 KB", "orjson.loads of the same"
    found = [
        Case(f"{many}, {text}", [*ours, str(root / name)], same, [*parse, str(root / without)], aim, code)
        for name, without, text, aim, code in (
            ("keys", "keys", "many tensors", "1.5", 0),
            ("grids", "grids", "nested grids", "2.0", 0),
            ("unknown", "unknown", "an unknown field in each", "3.0", 0),
            ("bare", "keys", "a bare NaN in each (orjson: without it)", "3.0", 1),
        )
    ]
    least = [sys.executable, str(HERE / "floors" / "validate_floor.py")]
    found += [
        Case(f"floor program: {many}, {text}", [*least, str(root / name)], same, [*parse, str(root / name)], "-")
        for name, text in (("keys", "many tensors"), ("grids", "nested grids"))
    ]
    copies = [str(root / f"copy{copy}") for copy in range(10)]
    python, empty = sys.executable, str(root / "empty.py")
    return [
        *found,
        Case("100 files", [*ours, str(root / "hundred")], "check-jsonschema", [*strict, *hundred], "-"),
        Case("1 file", [*ours, hundred[0]], "check-jsonschema", [*strict, hundred[0]], "-"),
        Case(f"{10 * files:,} files", [*ours, *copies], f"{files:,} files", [*ours, str(root / "keys")], "10"),
        Case("--version", [ours[0], "--version"], "--help of an empty Typer app", [python, empty, "--help"], "-"),
        Case("--help", [ours[0], "--help"], "--help of an empty Typer app", [python, empty, "--help"], "-"),
    ]


if __name__ == "__main__":
    run("validate", prepare, cases)
