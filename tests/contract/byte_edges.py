"""What readers say of a log and of a checkpoint of which one byte is missing, too much, or another.

Every byte of a short file is left out, doubled by each of a few others, and replaced by one; a whole line is put before, in and
behind a log. What is said then, and how many rows are left, is kept in `tests/verdicts/contract/`.
"""

from collections.abc import Callable, Iterator
from typing import get_args

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.io.jsonl import parse_lines
from ckaudit.contract.sizes import SIZES, WEIGHTS_ONLY, Groups, Kind, SizedPart, tensor_part, with_extra_numbers

LOG = b'{"step": 1, "time": 7.5e1, "a": "NaN"}\n{"step": 2, "time": -0, "a": null, "b\\u00e9": true}\r\n{"step": 3, "a": 1.5}\n'
CHECKPOINT = b'{"schema_version":"ck.analysis.v1","step":1,"weights":{"a\\n":{"frobenius_norm":1e0}},"triggers":["first"]}'
PUT_IN = (b"{", b"}", b"]", b",", b":", b'"', b"\\", b"\n", b" ", b"0", b"-", b".", b"N", b"\0", b"\xff", b"\xef\xbb\xbf")
LINES = (
    *(b' {"step": 2}', b'\t{"step": 2, "step": 2}', b' [{"step": 2}]'),
    *(
        b"",
        b" ",
        b"{}",
        b"[]",
        b"1",
        b"null",
        b'"step"',
        b"x,y",
        b"{",
        b'{"step": 2',
        b'{"step": 2}}',
        b'{"step": 2} {"step": 3}',
    ),
    *(b'{"step": -1}', b'{"step": 1.5}', b'{"step": 3.0}', b'{"step": "2"}', b'{"step": true}', b'{"step": null}', b'{"a": 1}'),
    *(b'{"step": 2, "step": 2}', b'{"step": 2, "a": 1, "a": 2}', b'{"step": 2, "a": {"b": 1}}', b'{"step": 2, "a": [1]}'),
    *(b'{"step": 2, "a": NaN}', b'{"step": 2, "a": -Infinity}', b'{"step": 2, "a": nan}', b'{"step": 2, "a": 1e999}'),
    *(b'{"step": 9223372036854775808}', b'{"step": 18446744073709551616}', b'{"step": 2, "a": 1' + b"0" * 400 + b"}"),
    *(b'{"step": 2, "time": -1}', b'{"step": 2, "time": "x"}', b'{"step": 2, "session": -1}', b'{"step": 2, "session": 1.0}'),
    *(b'{"step": 2, "a": "\\ud800"}', b'{"step": 2, "a": "x"}', b'{"schema_version": "ck.scalars.v1", "step": 2}'),
    *(b'{"schema_version": "ck.scalars.v9", "step": 2}', b"\xef\xbb\xbf" + b'{"step": 2}', b"//", b"\0\0\0"),
)


def said_of_log(data: bytes) -> str:
    """Return how many rows a log has, what is wrong in which line, and how many notes there are."""
    lines = parse_lines(data, "s")
    wrong = sorted(f"{each.code} in {each.line}" for each in lines.findings)
    return ", ".join((f"{len(lines.rows)} rows to {lines.numbers[-1:]}", *wrong, *(each[3:40] for each in lines.notes)))


def said_of_checkpoint(data: bytes) -> str:
    """Return what is wrong with a checkpoint."""
    return ", ".join(sorted({each.code for each in check_checkpoint(data, "x.json").findings}))


def of_bytes(data: bytes, violations_of: Callable[[bytes], str], put_in: tuple[bytes, ...]) -> Iterator[str]:
    """Yield a line for each thing that is said, with the places of the bytes of which it is."""
    ways: dict[str, Callable[[int], bytes]] = {"without": lambda place: data[:place] + data[place + 1 :]}
    ways |= {f"{put!r} before": lambda place, put=put: data[:place] + put + data[place:] for put in put_in}
    ways |= {f"{put!r} for": lambda place, put=put: data[:place] + put + data[place + 1 :] for put in put_in[:2]}
    ways["until"] = lambda place: data[:place]
    for how, change in ways.items():
        places: dict[str, list[int]] = {}
        for place in range(len(data)):
            places.setdefault(violations_of(change(place)), []).append(place)
        for told, found in places.items():
            yield f"{how} {spans(found)}: {told or 'nothing'}\n"


def spans(places: list[int]) -> str:
    """Return numbers in words, those that follow each other together.

    >>> spans([1, 2, 3, 7])
    '1-3 7'
    """
    ends: list[list[int]] = []
    for place in places:
        if ends and ends[-1][1] == place - 1:
            ends[-1][1] = place
        else:
            ends.append([place, place])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def of_lines() -> Iterator[str]:
    """Yield what is said of a log with a line before, in and behind it."""
    lines = LOG.splitlines(keepends=True)
    for line in LINES:
        for place in (0, 1, 3):
            told = said_of_log(b"".join((*lines[:place], line + b"\n", *lines[place:])))
            yield f"{line[:60]!r} before line {place + 1}: {told}\n"
        yield f"{line[:60]!r} at the end, open: {said_of_log(LOG + line)}\n"


def of_sizes() -> Iterator[str]:
    """Yield how many bytes each kind of part is thought to take, in every encoding and packing."""
    tensors = [tensor_part("blocks.0.w", (64, 8, 2), 0), tensor_part("blocks.0.b", (64,), 0), tensor_part("e", (0, 3), None)]
    layers = [SizedPart("blocks.0.attn", 0, 3, 100, is_causal=True), SizedPart("blocks.1.attn", 1, 2)]
    exact = with_extra_numbers(SIZES, exact=True, spectral=True)
    for sizes, name in ((SIZES, "all"), (WEIGHTS_ONLY, "weights"), (exact, "exact")):
        for encoding in get_args(GridEncoding):
            for suffix in SIZES.q8_left:
                groups = Groups(tensors, layers, layers, encoding, suffix, sizes)
                chunks = [f"{kind} {groups.chunk(kind, depth).bytes:.6g}" for kind in get_args(Kind) for depth in (0, 1, None)]
                yield f"{name} {encoding} {suffix}: {groups.always(7):.6g}, {', '.join(chunks)}\n"


def readers() -> dict[str, str]:
    """Return what readers say of files with one thing wrong."""
    return {
        "sizes": "".join(of_sizes()),
        "bytes_of_a_log": "".join(of_bytes(LOG, said_of_log, PUT_IN)),
        "lines_of_a_log": "".join(of_lines()),
        "bytes_of_a_checkpoint": "".join(of_bytes(CHECKPOINT, said_of_checkpoint, PUT_IN[:9])),
    }
