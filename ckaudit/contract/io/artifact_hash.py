"""The hash of an evaluation artifact, a tokenizer or a data manifest: equal wherever the content is equal (M59).

A prompt file checked out on Windows, a task list written by another JSON library and a folder listed in another order must not
look like a changed evaluation. So content is normalized before SHA-256:

- a `.json` file is written canonically, and so is each line of a `.jsonl` file, without blank lines;
- any other file that is UTF-8 without a zero byte loses its byte order mark, and CR LF becomes LF;
- everything else, and JSON that cannot be read, is unchanged: bytes, or text;
- a folder is the sorted list of its files, each with its hash; empty folders and files that operating systems leave behind do not
  count.

Dates, owners, permissions and the name of the artifact itself do not count.

Canonical JSON is the form of RFC 8785: keys sorted, no blanks, numbers in their shortest digits. Two documents with the same
meaning give the same bytes, whoever wrote them. There is one exception: a whole number beyond 2**53 keeps all of its digits,
because rounding it would make two different identifiers equal.
"""

import codecs
import hashlib
import json
import os
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from typing import Any, NoReturn

from ckaudit.errors import UnreadableError

CANONICAL, RAW = "sha256", "sha256-raw"
MAX_JSON_BYTES = 64 * 2**20  # larger documents are hashed as text on every machine, because parsing takes ten times their size
BLOCK = 2**20
LEFTOVERS = frozenset({".git", ".DS_Store", "Thumbs.db", "desktop.ini", "__pycache__", ".ipynb_checkpoints"})


def artifact_hash(path: Path, *, raw: bool = False) -> str:
    """Return `sha256:` and the hash of an artifact's content, or `sha256-raw:` and the hash of its bytes.

    Args:
        path: A file or a folder; a link is followed, but links inside a folder must not leave it.
        raw: Hash the bytes without normalization.

    Raises:
        UnreadableError: If something cannot be read, is not a regular file, is a link out of its folder, or is a folder without
            files: all empty artifacts would have the same hash.
    """
    digest = _folder(path, raw=raw) if path.is_dir() else _file(path, path.name, raw=raw)
    return f"{RAW if raw else CANONICAL}:{digest}"


def holds_content(path: Path) -> bool:
    """Tell whether there is something to hash: a file, or a folder that holds one.

    Raises:
        UnreadableError: If a folder cannot be listed.
    """
    return next(_files(path), None) is not None if path.is_dir() else path.exists()


def text_hash(text: str) -> str:
    """Return the hash that a JSON or text file with this content has, such as a tokenizer's JSON."""
    data = text.encode(errors="surrogatepass")
    try:
        data = canonical(text)
    except (ValueError, RecursionError):
        data = data.replace(b"\r\n", b"\n")
    return f"{CANONICAL}:{hashlib.sha256(data).hexdigest()}"


def _folder(root: Path, *, raw: bool) -> str:
    lines = []
    for path in _files(root):
        name = path.relative_to(root).as_posix()
        # macOS stores names in decomposed form, other systems as typed.
        shown = unicodedata.normalize("NFC", name).replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(os.fsencode(f"{shown}\0{_file(path, name, raw=raw)}\n"))
    if not lines:
        raise UnreadableError(f"{root} holds no file", hint="Name what the evaluation reads.")
    return hashlib.sha256(b"folder\n" + b"".join(sorted(lines))).hexdigest()


def _files(root: Path) -> Iterator[Path]:
    base = root.resolve()
    for folder, folders, names in os.walk(root, onerror=_cannot_list):
        folders[:] = [name for name in folders if name not in LEFTOVERS]
        for name in folders:
            _check_link(Path(folder, name), base, is_folder=True)
        for name in names:
            if name not in LEFTOVERS:
                path = Path(folder, name)
                _check_link(path, base, is_folder=False)
                yield path


def _cannot_list(error: OSError) -> None:
    raise UnreadableError(f"cannot list {error.filename}: {error.strerror or error}")


def _check_link(path: Path, base: Path, *, is_folder: bool) -> None:
    if not path.is_symlink():
        return
    try:
        inside = path.resolve().is_relative_to(base)
    except (OSError, RuntimeError):
        inside = True  # a loop: opening it fails
    if is_folder or not inside:
        what = "a link to a folder" if is_folder else "a link that leads out of its folder"
        raise UnreadableError(f"{path} is {what}", hint="Hash what it points to by its own name, or copy it into the folder.")


def _file(path: Path, name: str, *, raw: bool) -> str:
    if not raw and (form := _JSON_FORMS.get(Path(name).suffix.lower())) and (digest := form(path)):
        return digest
    as_bytes, as_text, text = hashlib.sha256(), hashlib.sha256(), _TextForm()
    for block in _blocks(path):
        as_bytes.update(block)
        if not raw and text.is_text:
            as_text.update(text.take(block))
    as_text.update(text.take(b"", final=True))
    return as_bytes.hexdigest() if raw or not text.is_text else as_text.hexdigest()


class _TextForm:
    """Text with LF and no byte order mark, block by block, as long as it is text."""

    def __init__(self) -> None:
        self.is_text = True
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest, self._started = b"", False

    def take(self, block: bytes, *, final: bool = False) -> bytes:
        try:
            self._decoder.decode(block, final)
        except UnicodeDecodeError:
            self.is_text = False
        self.is_text = self.is_text and b"\0" not in block
        data = self._rest + block
        if not self._started and (len(data) >= 3 or final):
            data, self._started = data.removeprefix(codecs.BOM_UTF8), True
        # A block may end between CR and LF, or inside the byte order mark.
        kept = len(data) - (data.endswith(b"\r")) if self._started else 0
        self._rest = b"" if final else data[kept:]
        return (data if final else data[:kept]).replace(b"\r\n", b"\n")


def _json(path: Path) -> str | None:
    data = b"".join(_blocks(path, max_bytes=MAX_JSON_BYTES))
    try:
        return hashlib.sha256(canonical(data.removeprefix(codecs.BOM_UTF8).decode())).hexdigest()
    except (ValueError, RecursionError):
        return None


def _json_lines(path: Path) -> str | None:
    digest, rest = hashlib.sha256(), b""
    try:
        for block in _blocks(path):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                _add_line(digest, line)
            if len(rest) > MAX_JSON_BYTES:
                return None
        _add_line(digest, rest)
    except (ValueError, RecursionError):
        return None
    return digest.hexdigest()


def _add_line(digest: "hashlib._Hash", line: bytes) -> None:
    if line.strip():
        digest.update(canonical(line.decode("utf-8-sig")) + b"\n")


_JSON_FORMS = {".json": _json, ".jsonl": _json_lines, ".ndjson": _json_lines}


def _blocks(path: Path, *, max_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of a regular file; nothing if it has more than `max_bytes`."""
    try:
        # An ordinary open of a pipe would block forever.
        with FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not S_ISREG(status.st_mode):
                raise UnreadableError(f"{path} is not a regular file", hint="Name a file or a folder.")
            if max_bytes is not None and status.st_size > max_bytes:
                return
            while block := stream.read(BLOCK):
                yield block
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from None


def canonical(text: str | bytes) -> bytes:
    r"""Return a JSON document in its canonical form.

    >>> canonical('{"b": 1.50, "a": [1e2, "\u00e9"]}').decode()
    '{"a":[100,"é"],"b":1.5}'

    Raises:
        ValueError: If it is not JSON, a key is repeated, a number is not finite, or a text cannot be written as UTF-8.
        RecursionError: If it is nested too deeply.
    """
    parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    return _written(parsed).encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice")
    return members


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _written(value: Any) -> str:
    match value:
        case dict():
            # RFC 8785, 3.2.3: keys in the order of their UTF-16 code units.
            members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
            return "{" + ",".join(f"{_quoted(key)}:{_written(member)}" for key, member in members) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case str():
            return _quoted(value)
        case float():
            return shortest(value)
        case _:
            return json.dumps(value)  # null, a boolean or a whole number


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def shortest(value: float) -> str:
    """Return a number in ECMAScript notation: the fewest digits that read back as the same float64.

    >>> shortest(1e21), shortest(-0.0), shortest(123000.0), shortest(1.5e-7)
    ('1e+21', '0', '123000', '1.5e-7')

    Raises:
        ValueError: If it is not finite.
    """
    if value in (float("inf"), float("-inf")) or value != value:  # noqa: PLR0124  only NaN differs from itself
        raise ValueError("a number is not finite")
    if value == 0:
        return "0"
    sign, parts, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, parts)).lstrip("0")
    point = exponent + len(digits)  # digits before the decimal point
    digits = digits.rstrip("0")
    return ("-" if sign else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Insert the decimal point into `digits`, or append an exponent (ECMA-262, Number::toString)."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{mantissa}e{point - 1:+d}"
