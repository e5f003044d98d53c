"""Headers of safetensors, damaged in any way: what its own library does not load is never whole here, nor the other way round."""

import json
import random

import pytest

from ckaudit.resume.open_file import FileFault, OpenFile, Unjudged
from ckaudit.resume.safetensors_files import read_safetensors
from tests.loops import for_each
from tests.resume.made import safetensors

A = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
B = {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]}
GOOD = json.dumps({"__metadata__": {"format": "pt"}, "a": A, "b": B}).encode()
PIECES = (
    b"-",
    b"0",
    b"1",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"null",
    b"2.0",
    b"-0",
    b"1e0",
    b"\\u0061",
    b"\xff",
    b"F64",
)
WRITTEN = (
    b'{"__metadata__":{"x":1},"a":A,"b":B}',
    b'{"__metadata__":{"x":null},"a":A,"b":B}',
    b'{"__metadata__":[1],"a":A,"b":B}',
    b'{"__metadata__":null,"a":A,"b":B}',
    b'{"__metadata__":{"x":{"y":"z"}},"a":A,"b":B}',
    b'{"__metadata__":{},"__metadata__":{},"a":A,"b":B}',
    b'{"__metadata__":{},"__metadat\\u0061__":{},"a":A,"b":B}',
    b'{"a":A,"a":A,"b":B}',
    b'{"\\u0061":A,"a":A,"b":B}',
    b'{"a":{"dtype":"F32","dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":B}',
    b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"more":"x:-1"},"b":B}',
    b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}',
    b'{"a":["F32",[2,2],[0,16]],"b":B}',
    b'{"a":{"dtype":{"F32":null},"shape":[2,2],"data_offsets":[0,16]},"b":B}',
    b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,12]},"b":B}',
    b'{"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,16]},"b":B}',
    b'{"a":A,"b":B}   ',
    b' {"a":A,"b":B}',
    b"\xef\xbb\xbf" + b'{"a":A,"b":B}',
    b'{"a":A,"b":B}\0\0',
    b"[]",
    b"",
)


@pytest.fixture
def library():
    return pytest.importorskip("safetensors")


def agree(library, folder, header, data=bytes(24)):
    """Hold both readers against each other: Unjudged is no verdict."""
    path = folder / "model.safetensors"
    safetensors(path, header, data)
    try:
        with library.safe_open(path, "np") as file:
            loads = all(file.get_slice(name).get_shape() is not None for name in file.keys())  # noqa: SIM118  no mapping
    except (library.SafetensorError, ValueError):
        loads = False
    try:
        with OpenFile(path, "model.safetensors", folder) as source:
            read_safetensors(source)
        whole = True
    except FileFault:
        whole = False
    except Unjudged:
        return
    assert whole is loads, header


@pytest.mark.parametrize("header", WRITTEN)
def test_headers_on_which_readers_of_json_differ(library, tmp_path, header):
    for name, entry in ((b"A", A), (b"B", B)):
        header = header.replace(b":" + name, b":" + json.dumps(entry).encode())
    agree(library, tmp_path, header)


@for_each("seed", range(3000))
def test_mutated_headers(library, tmp_path, seed):
    source = random.Random(seed)
    header = bytearray(GOOD)
    for _ in range(source.choice([1, 1, 2, 4])):
        at, cut = source.randrange(len(header)), source.choice([0, 0, 1, 2, 9])
        other = source.randrange(len(header))
        piece = source.choice([*PIECES, bytes(header[other : other + 12]), bytes([source.randrange(256)])])
        header[at : at + cut] = piece
    agree(library, tmp_path, bytes(header), bytes(source.choice([24, 24, 24, 23, 25, 0])))
