"""`run.json`: the facts of the run, one session per start, and what is needed to repeat the run."""

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
from typing import Any, get_type_hints

import msgspec

from ckaudit import __version__
from ckaudit.contract.io.artifact_hash import artifact_hash, text_hash
from ckaudit.contract.io.codec import SUFFIXES
from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, read_bytes
from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.recorder.guard import Guard

COMPUTED = (
    *("schema_version", "source", "parameters", "dropout", "dropout_module", "cadence", "triggers", "tensors", "attention"),
    *("batch_norm_batches", "sessions"),
)
FACTS = tuple(name for name in Manifest.__struct_fields__ if name not in COMPUTED)
SOURCES = ("tokenizer", "eval_artifacts")  # keywords that are turned into a fact, and are not facts themselves
MAX_INLINE = 2**20  # `run.json` holds only the hash of a larger data manifest

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens_map.json", "added_tokens.json", "*.model", "*.tiktoken")


def check_call(*, grids: str = "q8", suffix: str | None = None, **facts: Any) -> None:
    """Check the arguments of `Recorder` and `Writer`.

    Raises:
        TypeError: If a keyword is not a fact of `run.json`.
        ValueError: If `grids` or `suffix` is not one of its values.
    """
    known = sorted((*FACTS, *SOURCES))
    if unknown := facts.keys() - set(known):
        raise TypeError(f"no fact of run.json is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if grids not in ("q8", "nested", "none") or suffix not in (None, *SUFFIXES):
        raise ValueError("grids is one of 'q8', 'nested', 'none', and suffix one of '.json', '.json.gz', '.json.zst'")


def load(folder: Path) -> Manifest | None:
    """Return the manifest of an earlier start; None if the folder has none.

    Raises:
        msgspec.DecodeError: If it is not a manifest.
    """
    path = folder / MANIFEST_NAME
    return msgspec.json.decode(path.read_bytes(), type=Manifest) if path.exists() else None


def begin(facts: Mapping[str, Any], guard: Guard, *, start: float) -> Manifest:
    """Return the manifest of a new start with its one session; `join_earlier` adds what came before.

    A fact of the wrong type is left out and counted as a failure. Facts that were not given but that the process knows are added;
    see `resolved`.
    """
    manifest = Manifest(schema_version="ck.run.v1")
    types = _types()
    for name, value in resolved(facts, guard).items():
        with guard(f"the fact {name}"):
            setattr(manifest, name, msgspec.convert(msgspec.to_builtins(value, enc_hook=str, str_keys=True), types[name]))
    manifest.source = f"ckaudit recorder {__version__}"
    session = Session(
        start=start,
        commit=manifest.commit,
        world_size=manifest.world_size,
        node=platform.node() or msgspec.UNSET,
        accelerator=accelerator() or msgspec.UNSET,
    )
    manifest.sessions = [session]
    return manifest


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Manifest, include_extras=True)


def join_earlier(manifest: Manifest, earlier: Manifest, start_step: int) -> None:
    """Add a new session after those of earlier starts; facts that the new start does not know are taken from them."""
    for name in Manifest.__struct_fields__:
        if name != "sessions" and getattr(manifest, name) in (None, msgspec.UNSET):
            setattr(manifest, name, getattr(earlier, name))
    before, (session,) = earlier.sessions or [], manifest.sessions or []
    if before:
        session.resumed_from = start_step
    session.commit, session.world_size = session.commit or manifest.commit, session.world_size or manifest.world_size
    manifest.sessions = [*before, session]


def set_aside(folder: Path, start_step: int, session: int) -> list[str]:
    """Rename the checkpoints that a resume at `start_step` supersedes; return their new names.

    These are the checkpoints of later steps, or all of them if the run starts again at 0. The new name contains the number of the
    session that wrote the file. `session` is the number of this start; the session before it is used if a file does not say.
    """
    renamed = []
    for path in sorted(folder.iterdir()):
        if is_later(path.name, start_step):
            target = path.with_name(history_name(path.name, writer_of(path, session - 1)))
            path.replace(target)
            renamed.append(target.name)
    return renamed


def is_later(name: str, start_step: int) -> bool:
    """Tell whether a file is a checkpoint that a resume at `start_step` supersedes."""
    match = CHECKPOINT_NAME.match(name)
    if not match or not match["step"] or match["session"]:
        return False
    step = int(match["step"])
    return step > start_step or step == start_step == 0


def history_name(name: str, session: int) -> str:
    """Return the name of a superseded checkpoint, with the session that wrote it.

    >>> history_name("analysis_checkpoint_step_00000500.json.gz", 1)
    'analysis_checkpoint_step_00000500.session001.json.gz'
    """
    match = CHECKPOINT_NAME.match(name)
    place = match.end("label") if match else 0
    return f"{name[:place]}.session{session:03d}{name[place:]}"


class _Writer(msgspec.Struct):
    session: int | None = None


def writer_of(path: Path, fallback: int) -> int:
    """Return the session that wrote a checkpoint; `fallback` if the file does not say."""
    try:
        session = msgspec.json.decode(read_bytes(path, path.name), type=_Writer).session
    except Exception:  # noqa: BLE001  whatever is wrong with the file, it still has to go
        session = None
    return fallback if session is None else session


# What is needed to repeat a run, as far as the process knows it: code, packages, tokenizer, data, evaluation.
def resolved(facts: Mapping[str, Any], guard: Guard) -> dict[str, Any]:
    """Return the facts of a start: the given ones, with hashes of paths and objects, and those that the process knows itself.

    Given facts take precedence. A fact that cannot be determined is left out.
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
    computed: dict[str, Any] = {}
    for name, make in makers.items():
        if name not in given:
            with guard(f"the fact {name}"):
                if (value := make()) is not None:
                    computed[name] = value
    return {**computed, **given}


def _of(facts: Mapping[str, Any], name: str, make: Callable[[Any], Any]) -> Any:
    return None if facts.get(name) is None else make(facts[name])


def commit(start: Path | None = None) -> str | None:
    """Return the git commit of the training code, read from the files in `.git`; None if there is none.

    Uncommitted changes are not detected: that would need git itself, and takes seconds in a large repository.

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
    if git.is_file():  # in a worktree or a submodule, this file names the folder
        git = git.parent / git.read_text().strip().removeprefix("gitdir: ")
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else None
    shared = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
    name = head.removeprefix("ref: ")
    for folder in (git, shared):
        if (folder / name).is_file():
            commit_hash = (folder / name).read_text().strip()
            return commit_hash if _COMMIT.fullmatch(commit_hash) else None
    packed = (shared / "packed-refs").read_text().splitlines() if (shared / "packed-refs").is_file() else []
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)


@cache
def packages_hash() -> str:
    """Return the hash of the installed packages: a line `name==version` for each, sorted.

    Names and versions come from the names of the metadata folders: reading their files takes as long as a checkpoint of a small
    model.
    """
    named: dict[str, str] = {}
    for folder in sys.path:
        for entry in Path(folder or ".").glob("*.*-info"):
            name, _, version = entry.stem.partition("-")
            named.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)  # the first one found is imported
    return text_hash("".join(f"{name}=={version}\n" for name, version in sorted(named.items())))


def environment() -> dict[str, str]:
    """Return the versions of Python, of this package, and of the libraries that are loaded."""
    versions = {"python": platform.python_version(), "ckaudit": __version__}
    for name in ("torch", "jax", "numpy", "transformers", "lightning"):
        if version := getattr(sys.modules.get(name), "__version__", None):
            versions[name] = str(version)
    if cuda := getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None):
        versions["cuda"] = str(cuda)
    return versions


def accelerator() -> str:
    """Return type and unique ID of the accelerator that this process uses; empty if there is none or it has no ID."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return ""
        facts = cuda.get_device_properties(cuda.current_device())
        return f"{facts.name} {getattr(facts, 'uuid', '')}".strip()
    except Exception:  # noqa: BLE001  no driver may cost a training its record
        return ""


def artifact_hashes(artifacts: Mapping[str, str | os.PathLike[str]]) -> dict[str, str]:
    """Return the hash of each evaluation artifact by its name, as `ckaudit hash` prints it."""
    return {name: artifact_hash(Path(path)) for name, path in artifacts.items()}


def data_manifest(given: Any) -> dict[str, Any]:
    """Return a data manifest: a mapping unchanged, the content of a JSON file, or the hash of anything else."""
    if isinstance(given, Mapping):
        return dict(given)
    path = Path(given)
    by_hash = {"file": path.name, "hash": artifact_hash(path)}
    if path.suffix.lower() != ".json" or path.stat().st_size > MAX_INLINE:
        return by_hash
    content = json.loads(path.read_text(encoding="utf-8"))
    return {**by_hash, **content} if isinstance(content, dict) else by_hash


def tokenizer_hash(given: Any) -> str:
    """Return the hash of a tokenizer; the object and its saved file have the same hash.

    Truncation and padding, which a call changes in a tokenizer, do not count.

    Args:
        given: A file, a folder that holds one, or a tokenizer of `tokenizers`, `transformers`, `sentencepiece` or `tiktoken`.

    Raises:
        TypeError: If it is none of these.
        UnreadableError: If a file cannot be read.
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
    files = sorted({file for pattern in _TOKENIZER_FILES for file in path.glob(pattern) if file.is_file()})
    if not files:
        return artifact_hash(path)  # raises with the reason, or hashes a folder of something else
    return text_hash("".join(f"{artifact_hash(file)}  {file.name}\n" for file in files))


def _without_state(text: str) -> str:
    content = json.loads(text)
    if isinstance(content, dict):
        content |= {name: None for name in ("truncation", "padding") if name in content}
    return text_hash(json.dumps(content, ensure_ascii=False))


def model_config(model: Any) -> dict[str, Any]:
    """Return the fact `model` if a model has a configuration: an object, a dataclass or a mapping."""
    return next(({"model": config} for config in _configs(getattr(model, "config", None)) if config), {})


def _configs(config: Any) -> Iterator[dict[str, Any]]:
    if isinstance(config, Mapping):
        yield dict(config)
    elif dataclasses.is_dataclass(config) and not isinstance(config, type):
        yield dataclasses.asdict(config)
    elif callable(getattr(config, "to_dict", None)):
        yield dict(config.to_dict())
    elif type(config).__name__ in ("Namespace", "SimpleNamespace"):
        yield dict(vars(config))
