"""Passages reserved before training: chosen, cut in two, and stored with a hash, so that all scores are of the same passages.

Step 1 of the memorization protocol (MP-1): a few fixed passages of the training data, and as many that training never sees. The
choice depends on their content alone: those with the lowest hashes. It is not random, does not depend on the order of files, and
is the same on every machine.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush, heapreplace
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ckaudit.contract.io.artifact_hash import canonical
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.errors import UnreadableError
from ckaudit.material.columns import Columns
from ckaudit.material.files import WRONG_TYPE, FaultCollector
from ckaudit.material.records import Progress, Reading, Record

Group = Literal["train", "held_out"]  # the labels of probe_accuracy
TRAIN: Group = "train"
HELD_OUT: Group = "held_out"
COLUMNS = Columns({"text": ("text", "content"), "tokens": ("input_ids", "tokens")})
PASSAGES, PASSAGE_TOKENS, MIN_HALF_TOKENS = 16, 50, 4
SPARE = 4  # factor for held-out passages kept until it is known which of them are in the corpus
WORD = re.compile(r"\S+")


class Passage(Struct, frozen=True, kw_only=True):
    """One reserved passage.

    Attributes:
        id: Name of the passage, the label of its scores.
        group: Whether training sees it.
        prompt: Prompt of the model: a text, or token ids.
        truth: Text or tokens that follow the prompt.
        source: Place in the data, as file:line.
        hash: Hash of prompt and truth.
    """

    id: str
    group: Group
    prompt: str | list[int]
    truth: str | list[int]
    source: str
    hash: str


class ReservedPassages(Struct, frozen=True, kw_only=True):
    """The reserved passages, and the faults.

    Attributes:
        passages: The passages, those of training first.
        seen: Number of held-out passages that are in the corpus too; they are left out.
        faults: Records that could not be read.
    """

    passages: tuple[Passage, ...]
    seen: int
    faults: FaultCollector


class _LowestHashes:
    """Keeps the passages with the lowest hashes, each once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.heap: list[tuple[int, str]] = []
        self.by_hash: dict[str, Passage] = {}

    def add(self, passage: Passage) -> None:
        key = -int(passage.hash.removeprefix("sha256:"), 16)
        if passage.hash in self.by_hash:
            return
        if len(self.heap) < self.count:
            heappush(self.heap, (key, passage.hash))
        elif key > self.heap[0][0]:
            del self.by_hash[heapreplace(self.heap, (key, passage.hash))[1]]
        else:
            return
        self.by_hash[passage.hash] = passage

    def passages(self) -> list[Passage]:
        return sorted(self.by_hash.values(), key=lambda passage: passage.hash)


def reserve(
    corpus: Reading,
    held_out: Reading | None,
    *,
    count: int = PASSAGES,
    tokens: int = PASSAGE_TOKENS,
    progress: Progress | None = None,
) -> ReservedPassages:
    """Choose passages of the corpus, and of texts that training never sees.

    Args:
        corpus: The training data.
        held_out: Held-out data; None: no such passages.
        count: Passages of each group; the protocol asks for 10 to 20.
        tokens: Maximum number of words or tokens of a truth, and of its prompt; a shorter text is cut in half.
        progress: Called with the number of read bytes and of all bytes.
    """
    faults, outside, inside, seen = FaultCollector(), _LowestHashes(SPARE * count), _LowestHashes(count), set[str]()
    for passage in _passages(held_out, HELD_OUT, tokens, faults, None) if held_out else ():
        outside.add(passage)
    for passage in _passages(corpus, TRAIN, tokens, faults, progress):
        inside.add(passage)
        if passage.hash in outside.by_hash:
            seen.add(passage.hash)
    others = [passage for passage in outside.passages() if passage.hash not in seen][:count]
    named = [*_named(inside.passages()), *_named(others)]
    return ReservedPassages(passages=tuple(named), seen=len(seen), faults=faults)


def _named(passages: Sequence[Passage]) -> Iterator[Passage]:
    for number, passage in enumerate(passages):
        yield msgspec.structs.replace(passage, id=f"{passage.group}_{number:02d}")


def _passages(
    reading: Reading, group: Group, tokens: int, faults: FaultCollector, progress: Progress | None
) -> Iterator[Passage]:
    for record in reading.records(faults.report, progress):
        cut = _cut(record, tokens, faults)
        if cut is not None:
            prompt, truth = cut
            yield Passage(id="", group=group, prompt=prompt, truth=truth, source=record.place, hash=hash_of(prompt, truth))


def _cut(record: Record, tokens: int, faults: FaultCollector) -> tuple[Any, Any] | None:
    """Return both halves of a document, None if it is too short or has nothing to cut."""
    text, ids = record.values.get("text"), record.values.get("tokens")
    if isinstance(text, str):
        words = list(WORD.finditer(text))[: 2 * tokens]
        half = len(words) // 2
        if half < MIN_HALF_TOKENS:
            return None
        return text[words[0].start() : words[half - 1].end()], text[words[half].start() : words[-1].end()]
    if isinstance(ids, list) and all(isinstance(id_, int) and not isinstance(id_, bool) for id_ in ids):
        half = len(ids[: 2 * tokens]) // 2
        return (ids[:half], ids[half : min(len(ids), 2 * tokens)]) if half >= MIN_HALF_TOKENS else None
    faults.report(WRONG_TYPE.at(record.file, f"line {record.line}: neither a text nor a list of token numbers", line=record.line))
    return None


def hash_of(prompt: str | list[int], truth: str | list[int]) -> str:
    """Return the hash of a passage's content."""
    return f"sha256:{hashlib.sha256(canonical(msgspec.json.encode([prompt, truth]))).hexdigest()}"


def encoded(passages: Iterable[Passage]) -> bytes:
    """Return passages as JSON lines."""
    return b"".join(msgspec.json.encode(passage) + b"\n" for passage in passages)


def read_passages(path: Path) -> list[Passage]:
    """Read reserved passages.

    Raises:
        UnreadableError: If they cannot be read, or do not match their hashes.
    """
    try:
        lines = [line for line in read_bytes(path, path.name).splitlines() if line.strip()]
        passages = [msgspec.json.decode(line, type=Passage) for line in lines]
    except BrokenFile as broken:
        raise UnreadableError(f"{path}: {broken.finding.message}", hint="ckaudit probe init writes such a file.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"{path} holds no probes: {error}", hint="ckaudit probe init writes such a file.") from None
    changed = [passage.id for passage in passages if passage.hash != hash_of(passage.prompt, passage.truth)]
    if changed or not passages:
        what = f"{changed[0]} is not what its hash says" if changed else "no probe stands in it"
        raise UnreadableError(f"{path}: {what}", hint="Take the file that was written before the training.")
    return passages
