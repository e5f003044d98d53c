"""What it takes to repeat a run, as far as the process can tell by itself: code, packages, tokenizer, data, evaluation."""

import dataclasses
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ckaudit import __version__
from ckaudit.contract.io.artifact_hash import artifact_hash, text_hash
from ckaudit.recorder.guard import Guard

SOURCES = ("tokenizer", "eval_artifacts")  # keywords that stand for a fact, and are none themselves
MAX_INLINE = 2**20  # a larger data manifest stands in run.json by its hash only

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens_map.json", "added_tokens.json", "*.model", "*.tiktoken")


def resolved(facts: Mapping[str, Any], guard: Guard) -> dict[str, Any]:
    """Return the facts of a start: those given, paths and objects turned to hashes, and what the process knows itself.

    What was given rules; what fails is left out.
    """
    given = {name: value for name, value in facts.items() if name not in (*SOURCES, "data_manifest") and value is not None}
    makers: dict[str, Callable[[], Any]] = {
        "commit": commit,
        "lock_hash": packages_hash,
        "environment": environment,
        "tokenizer_hash": lambda: _of(facts, "tokenizer", tokenizer_hash),
        "eval_artifact_hashes": lambda: _of(facts, "eval_artifacts", artifact_hashes),
        "data_manifest": lambda: _of(facts, "data_manifest", data_manifest),
    }
    found: dict[str, Any] = {}
    for name, make in makers.items():
        if name not in given:
            with guard(f"the fact {name}"):
                if (value := make()) is not None:
                    found[name] = value
    return {**found, **given}


def _of(facts: Mapping[str, Any], name: str, make: Callable[[Any], Any]) -> Any:
    return None if facts.get(name) is None else make(facts[name])


def commit(start: Path | None = None) -> str | None:
    """Return the git commit of the training code, read from its files; None where there is none.

    Changes that were not committed are not seen: that would need git itself, and seconds in a large repository.

    Args:
        start: A folder of the code; default: that of the main script, then the working folder.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    starts = [start] if start else [*([Path(main).parent] if main else []), Path.cwd()]
    for folder in (parent for start in starts for parent in (start.absolute(), *start.absolute().parents)):
        if (folder / ".git").exists():
            return _head(folder / ".git")
    return None


def _head(git: Path) -> str | None:
    if git.is_file():  # a worktree or a submodule: the folder is elsewhere
        git = git.parent / git.read_text().strip().removeprefix("gitdir: ")
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else None
    shared = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
    name = head.removeprefix("ref: ")
    for folder in (git, shared):
        if (folder / name).is_file():
            found = (folder / name).read_text().strip()
            return found if _COMMIT.fullmatch(found) else None
    packed = (shared / "packed-refs").read_text().splitlines() if (shared / "packed-refs").is_file() else []
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)


@cache
def packages_hash() -> str:
    """Return the hash of what is installed: a line `name==version` for each package, sorted.

    Names and versions are those of the folders that installers leave behind: reading what is in them takes as long as a
    checkpoint of a small model.
    """
    named: dict[str, str] = {}
    for folder in sys.path:
        for entry in Path(folder or ".").glob("*.*-info"):
            name, _, version = entry.stem.partition("-")
            named.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)  # what is found first is imported
    return text_hash("".join(f"{name}=={version}\n" for name, version in sorted(named.items())))


def environment() -> dict[str, str]:
    """Return the versions that the run stands on: of Python, of this package, and of the libraries that are loaded."""
    found = {"python": platform.python_version(), "ckaudit": __version__}
    for name in ("torch", "jax", "numpy", "transformers", "lightning"):
        if version := getattr(sys.modules.get(name), "__version__", None):
            found[name] = str(version)
    if cuda := getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None):
        found["cuda"] = str(cuda)
    return found


def artifact_hashes(artifacts: Mapping[str, str | os.PathLike[str]]) -> dict[str, str]:
    """Return the hash of each evaluation artifact by its name, as `ckaudit hash` prints it."""
    return {name: artifact_hash(Path(path)) for name, path in artifacts.items()}


def data_manifest(given: Any) -> dict[str, Any]:
    """Return a data manifest: a mapping as it is, a JSON file as it says, anything else by its hash."""
    if isinstance(given, Mapping):
        return dict(given)
    path = Path(given)
    by_hash = {"file": path.name, "hash": artifact_hash(path)}
    if path.suffix.lower() != ".json" or path.stat().st_size > MAX_INLINE:
        return by_hash
    content = json.loads(path.read_text(encoding="utf-8"))
    return {**by_hash, **content} if isinstance(content, dict) else by_hash


def tokenizer_hash(given: Any) -> str:
    """Return the hash of a tokenizer, equal for the object and for the file it was saved to.

    What a call leaves behind in a tokenizer, its truncation and padding, does not count.

    Args:
        given: A file, a folder that holds one, or a tokenizer of `tokenizers`, `transformers`, `sentencepiece` or `tiktoken`.

    Raises:
        TypeError: Where it is none of these.
        UnreadableError: Where a file cannot be read.
    """
    if isinstance(given, str | os.PathLike):
        return _of_path(Path(given))
    backend = getattr(given, "backend_tokenizer", given)
    if hasattr(backend, "to_str"):
        return _without_state(backend.to_str())
    if hasattr(given, "serialized_model_proto"):
        return f"sha256:{hashlib.sha256(given.serialized_model_proto()).hexdigest()}"
    if hasattr(given, "get_vocab"):
        special = getattr(given, "special_tokens_map", {})
        return text_hash(json.dumps({"vocabulary": given.get_vocab(), "special": special}, default=str))
    if hasattr(given, "token_byte_values") and hasattr(given, "name"):
        values = b"".join(len(value).to_bytes(4, "big") + value for value in given.token_byte_values())
        return f"sha256:{hashlib.sha256(given.name.encode() + values).hexdigest()}"
    raise TypeError(f"a {type(given).__name__} is no tokenizer that is known; give the path of its file")


def _of_path(path: Path) -> str:
    if path.is_dir() and (path / "tokenizer.json").is_file():
        path /= "tokenizer.json"
    if path.is_file():
        return _without_state(path.read_text(encoding="utf-8")) if path.name == "tokenizer.json" else artifact_hash(path)
    files = sorted({each for pattern in _TOKENIZER_FILES for each in path.glob(pattern) if each.is_file()})
    if not files:
        return artifact_hash(path)  # it says what is wrong, or is a folder of something else
    return text_hash("".join(f"{artifact_hash(file)}  {file.name}\n" for file in files))


def _without_state(text: str) -> str:
    content = json.loads(text)
    if isinstance(content, dict):
        content |= {name: None for name in ("truncation", "padding") if name in content}
    return text_hash(json.dumps(content, ensure_ascii=False))


def model_config(model: Any) -> dict[str, Any]:
    """Return the fact `model` where a model carries its configuration: as an object, a dataclass or a mapping."""
    return next(({"model": found} for found in _configs(getattr(model, "config", None)) if found), {})


def _configs(config: Any) -> Iterator[dict[str, Any]]:
    if isinstance(config, Mapping):
        yield dict(config)
    elif dataclasses.is_dataclass(config) and not isinstance(config, type):
        yield dataclasses.asdict(config)
    elif callable(getattr(config, "to_dict", None)):
        yield dict(config.to_dict())
    elif type(config).__name__ in ("Namespace", "SimpleNamespace"):
        yield dict(vars(config))
