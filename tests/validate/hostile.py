"""Folders with one good checkpoint and one thing that nobody should have written; run as a script, it judges them all.

The script bounds its own memory, so that a bomb that goes off ends in a MemoryError and not in a slow machine.
"""

import gzip
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path

import zstandard

NAME = "analysis_checkpoint_step_00000010.json"
GOOD = "analysis_checkpoint_step_00000000.json"
MEMORY = 500 * 10**6


def _document(**changed: object) -> bytes:
    return json.dumps({"schema_version": "ck.analysis.v1", "step": 10} | changed).encode()


def _bytes(data: bytes, name: str = NAME) -> Callable[[Path], None]:
    return lambda folder: _plant(folder / name, data)


def _plant(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _run(members: str) -> Callable[[Path], None]:
    return _bytes(b'{"schema_version": "ck.run.v1", ' + members.encode() + b"}", "run.json")


def _sparse(folder: Path) -> None:
    with (folder / NAME).open("wb") as stream:
        stream.truncate(3 * 2**30)


def _sparse_log(folder: Path) -> None:
    with (folder / "scalars.jsonl").open("wb") as stream:
        stream.truncate(3 * 2**30)


@cache
def _gzipped() -> bytes:
    packed = BytesIO()
    with gzip.open(packed, "wb", compresslevel=1) as stream:
        for _ in range(8):
            stream.write(bytes(2**24))
    return packed.getvalue()


def _gzip_bomb(name: str) -> Callable[[Path], None]:
    return lambda folder: _plant(folder / name, _gzipped())


def _zstd_bomb(name: str, fill: bytes) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        with (folder / name).open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as stream:
            for _ in range(8):
                stream.write(fill * (2**24 // len(fill)))

    return plant


def _loop(folder: Path) -> None:
    (folder / NAME).symlink_to(NAME)


def _outside(folder: Path) -> None:
    secret = folder.parent / "secret.json"
    secret.write_bytes(_document())
    (folder / NAME).symlink_to(secret)


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / NAME)


def _directory(folder: Path) -> None:
    (folder / NAME).mkdir()


def _unreadable(folder: Path) -> None:
    _plant(folder / NAME, _document())
    (folder / NAME).chmod(0)


def _weights(text: str) -> bytes:
    return _document(weights="HERE").replace(b'"HERE"', text.encode())


def _tensors(count: int, each: str) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        _plant(folder / NAME, _weights("{" + ",".join(f'"t{index}":{each}' for index in range(count)) + "}"))

    return plant


def _numbers(folder: Path) -> None:
    _plant(folder / NAME, _weights("[" + ",".join(["0.25"] * 7_000_000) + "]"))


def _long_line(folder: Path) -> None:
    _plant(folder / "scalars.jsonl", b'{"step": 1, "x": "' + bytes(60_000_000).replace(b"\0", b"x") + b'"}\n{"step": 2}\n')


DEEP = b'{"schema_version":"ck.analysis.v1","step":10,"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"

CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (_bytes(_document(loss=2.5)[:-9]), "SYN005"),
    "empty": (_bytes(b""), "SYN002"),
    "zeros": (_bytes(bytes(5000)), "SYN002"),
    "binary": (_bytes(bytes(range(256)) * 40), "SYN003"),
    "utf-16": (_bytes(_document().decode().encode("utf-16")), "SYN003"),
    "byte order mark": (_bytes(b"\xef\xbb\xbf" + _document()), "SYN004"),
    "duplicate keys": (_bytes(_document(loss=2.0).replace(b'"loss"', b'"loss": 1.0, "loss"')), "SYN010"),
    "deep nesting": (_bytes(DEEP), "SYN007"),
    "400 digits": (_bytes(_document(loss=int("9" * 400))), "SYN011"),
    "400 digits in a step": (_bytes(_document().replace(b"10}", b"9" * 400 + b"}")), "SYN011"),
    "5000 digits": (_bytes(_document().replace(b"10}", b"9" * 5000 + b"}")), "SYN011"),
    "1e999": (_bytes(_document(loss=0).replace(b'"loss": 0', b'"loss": 1e999')), "SYN011"),
    "bare NaN": (_bytes(_document(loss=float("nan"))), "SYN009"),
    "C's nan": (_bytes(_document(loss=0).replace(b'"loss": 0', b'"loss": -nan')), "SYN009"),
    "a list": (_bytes(b"[1, 2]"), "SCH009"),
    "half a surrogate pair": (_bytes(_weights('{"\\ud800": {"min": "x"}}')), "SYN003"),
    "half a surrogate pair in an unknown field": (_bytes(_document(x=0).replace(b'"x": 0', b'"x": "\\ud800"')), "SYN003"),
    "1e999 in an unknown field": (_bytes(_document(x=0).replace(b'"x": 0', b'"x": 1e999')), "SYN011"),
    "5000 digits in an unknown field": (_bytes(_document(x=0).replace(b'"x": 0', b'"x": ' + b"9" * 5000)), "SYN011"),
    "bad bytes in an unknown field": (_bytes(_document(x=0).replace(b'"x": 0', b'"x": "\xff"')), "SYN003"),
    "900 levels in an unknown field": (_bytes(_document(x=0).replace(b'"x": 0', b'"x": ' + b"[" * 900 + b"]" * 900)), "SCH008"),
    "half a surrogate pair as a tensor": (_bytes(_weights('{"\\ud800": {"min": 0}}')), "SYN003"),
    "sparse file of 3 GB": (_sparse, "SYN008"),
    "gzip bomb": (_gzip_bomb(NAME + ".gz"), "SYN008"),
    "zstd bomb": (_zstd_bomb(NAME + ".zst", b"\0"), "SYN008"),
    "not gzip": (_bytes(b"hello", NAME + ".gz"), "SYN012"),
    "not zstd": (_bytes(b"hello", NAME + ".zst"), "SYN012"),
    "cut gzip": (_bytes(gzip.compress(_document())[:-12], NAME + ".gz"), "SYN005"),
    "cut zstd": (_bytes(zstandard.compress(_document())[:-12], NAME + ".zst"), "SYN005"),
    "symlink loop": (_loop, "SYN001"),
    "link out of the folder": (_outside, "SYN013"),
    "unreadable": (_unreadable, "SYN001"),
    "fifo": (_fifo, "SYN001"),
    "directory": (_directory, "SYN001"),
    "2,000,000 tensors": (_tensors(2_000_000, '{"x":1}'), "SYN008"),
    "100,000 unknown keys": (_tensors(100_000, '{"x":1}'), "SCH008"),
    "40,000 wrong values": (_tensors(40_000, '{"min":"x"}'), "SCH006"),
    "7,000,000 numbers": (_numbers, "SYN008"),
    "run.json is a list": (_bytes(b"[]", "run.json"), "SCH009"),
    "run.json is deep": (_bytes(DEEP.replace(b"analysis", b"run"), "run.json"), "SYN007"),
    "run.json with half a surrogate pair": (_run('"config": {"a": "\\ud800"}, "x\\ud800": 1'), "SYN003"),
    "run.json with 1e999": (_run('"config": {"lr": 1e999}'), "SYN011"),
    "run.json with 5000 digits": (_run('"config": {"lr": ' + "9" * 5000 + "}"), "SYN011"),
    "run.json with bad bytes": (_bytes(b'{"schema_version": "ck.run.v1", "config": {"a": "\xff"}}', "run.json"), "SYN003"),
    "run.json with 900 levels": (_run('"config": {"a": ' + "[" * 900 + "]" * 900 + "}"), ""),
    "run.json with a huge seed": (_bytes(b'{"schema_version":"ck.run.v1","seed":1' + b"0" * 40 + b"}", "run.json"), ""),
    "binary log": (_bytes(bytes(range(256)) * 400, "scalars.jsonl"), "SYN003"),
    "binary log with lines": (_bytes(b'{"step": 1}\n' + bytes(range(1, 256)) * 25_000, "scalars.jsonl"), "SYN006"),
    "utf-16 log": (_bytes('{"step": 1}\n'.encode("utf-16"), "scalars.jsonl"), "SYN003"),
    "log with a line of 60 MB": (_long_line, "SYN008"),
    "sparse log of 3 GB": (_sparse_log, "SYN008"),
    "gzip bomb of a log": (_gzip_bomb("scalars.jsonl.gz"), "SYN008"),
    "zstd bomb of empty objects": (_zstd_bomb("scalars.jsonl.zst", b"{}\n"), "SCH003"),
    "zstd bomb of empty lines": (_zstd_bomb("scalars.jsonl.zst", b"\n"), "SYN008"),
    "deep line": (_bytes(DEEP.replace(b"analysis", b"scalars") + b"\n", "scalars.jsonl"), "SYN007"),
}


def plant_all(root: Path) -> None:
    """Make a folder per case: the good checkpoint and the bad thing."""
    for name, (plant, _) in CASES.items():
        (root / name).mkdir()
        _plant(root / name / GOOD, _document(step=0))
        plant(root / name)


def judge_all(root: Path) -> dict[str, dict[str, object]]:
    """Judge every case in its own folder under `root`."""
    from ckaudit.validate import validate

    results = {}
    for name in CASES:
        start = time.process_time()  # a machine may be busy
        report = validate([root / name])
        results[name] = {
            "seconds": time.process_time() - start,
            "files": report.files,
            "verdict": report.verdict,
            "found": [(finding.code, finding.file, finding.message[:300]) for finding in report.findings],
        }
    return results


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.stdout.write(json.dumps(judge_all(Path(sys.argv[1]))))
