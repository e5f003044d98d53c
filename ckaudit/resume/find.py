"""The resume checkpoints in a folder: folders that trainers write, single files, and files of one step."""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from ckaudit.contract.io.folder import shown_name
from ckaudit.errors import UnreadableError

MAX_FILES = 100_000
MAX_DEPTH = 4
DATA = re.compile(
    r".+\.(?:pt|pth|ckpt|safetensors|distcp|pth\.tar)$|random_states_\d+\.pkl$"
    r"|(?:pytorch_model|model|adapter_model|optimizer|scheduler|sampler|training_args|diffusion_pytorch_model)[-\w]*\.bin$",
    re.IGNORECASE,
)
TEMPORARY = re.compile(r"^tmp[-_.]|^\..+\.tmp-\d+$|\.(?:tmp|temp|partial|part|incomplete)(?:$|[-_.])|^_?tmp_|~$", re.IGNORECASE)
LIKE_ONE = re.compile(r"checkpoint|ckpt|step|iter|model|optim|\.(?:pt|pth|bin|safetensors|distcp|metadata)", re.IGNORECASE)
STEP = re.compile(r"(?:^|[^a-z])(?:global_?step|checkpoint|ckpt|step|iter(?:ation)?)[-_=]?0*(\d{1,15})(?!\d)", re.IGNORECASE)
ROLE = re.compile(
    r"^(?:model|optim|optimizer|meta|sched\w*|rng\w*|scaler|state|ema|train_state)[-_](?:.*[-_])?0*(\d{1,15})\D", re.IGNORECASE
)
ANY_NUMBER = re.compile(r"(\d{1,15})(?!.*\d)")
WHOLE_MODEL = re.compile(
    r"^(?:model|pytorch_model|adapter_model)(?:-\d+-of-\d+)?(?:\.safetensors|\.bin|\.(?:safetensors|bin)\.index\.json)$"
)


class FoundCheckpoint(Struct, frozen=True):
    """One checkpoint.

    Attributes:
        name: Its folder or its first file, relative to the root.
        files: Its files.
        step: The step in its name.
        is_folder: Whether the checkpoint is a folder.
        is_root: Whether it is the audited folder.
    """

    name: str
    files: list[Path]
    step: int | None
    is_folder: bool
    is_root: bool = False

    @property
    def file(self) -> str | None:
        """The place of a finding about the whole checkpoint; None: it is the audited folder itself."""
        return None if self.is_root else self.name


class Window(Struct):
    """The content of the audited folder.

    Attributes:
        checkpoints: Checkpoints in the order of steps.
        left_over: Temporary files and folders of unfinished saves.
        links: Links to another path in the folder, or to a folder elsewhere, with their targets.
        sums: Files with checksums.
        cut: Whether there were more files than the limit.
    """

    checkpoints: list[FoundCheckpoint] = field(default_factory=list)
    left_over: list[Path] = field(default_factory=list)
    links: list[tuple[Path, str]] = field(default_factory=list)
    sums: list[Path] = field(default_factory=list)
    cut: bool = False


def find(root: Path) -> Window:
    """Return the checkpoints in a folder, or the one that a file is.

    Raises:
        UnreadableError: If the path does not exist.
    """
    window = Window()
    if root.is_file():
        window.checkpoints.append(FoundCheckpoint(shown_name(root.name), [root], step_of(root.name), is_folder=False))
        checksums = root.with_name(root.name + ".sha256")
        window.sums += [checksums] if checksums.is_file() else []
        return window
    if not root.is_dir():
        raise UnreadableError(f"there is no {root}", hint="Name the folder that the training saves to.")
    _Search(root, window).folder(root, 0)
    window.checkpoints.sort(key=lambda checkpoint: (checkpoint.step if checkpoint.step is not None else -1, checkpoint.name))
    return window


def step_of(name: str) -> int | None:
    """Return the step in a name; None if it has none, or only an epoch.

    >>> step_of("checkpoint-500"), step_of("epoch=3-step=1200.ckpt"), step_of("epoch_3.pt"), step_of("model_000700.pt")
    (500, 1200, None, 700)
    """
    if match := STEP.search(name) or ROLE.search(name):
        return int(match[1])
    if "epoch" in name.lower() or "-of-" in name or not (match := ANY_NUMBER.search(Path(name).stem)):
        return None
    return int(match[1]) if len(match[1]) > 2 or Path(name).stem == match[1] else None


class _Search:
    def __init__(self, root: Path, window: Window) -> None:
        self.root, self.window, self.count = root, window, 0

    def folder(self, folder: Path, depth: int) -> None:
        files, folders = self._list(folder)
        names = {path.name for path in files}
        data = [path for path in files if DATA.match(path.name)]
        if self._is_one(folder, names, data):
            self._add(folder, list(self._tree(files, folders)), is_folder=True)
            return
        if any(WHOLE_MODEL.match(name) for name in names):
            self._add(folder, files, is_folder=True)
        else:
            for group in _groups(files, data):
                self._add(group[0], group, is_folder=False)
        for subfolder in folders if depth < MAX_DEPTH else ():
            self.folder(subfolder, depth + 1)

    def _is_one(self, folder: Path, names: set[str], data: list[Path]) -> bool:
        """Tell whether a folder with everything below it is one checkpoint."""
        if ".metadata" in names or "trainer_state.json" in names or any(path.suffix == ".distcp" for path in data):
            return True
        ranks = any(name.startswith(("mp_rank_", "zero_pp_rank_")) for name in [*names, *self._names_below(folder)])
        steps = {step_of(path.name) for path in data if STEP.search(path.name)}
        return STEP.search(folder.name) is not None and (bool(data) or ranks) and len(steps) < 2

    def _names_below(self, folder: Path) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except OSError:
            return []

    def _tree(self, files: list[Path], folders: list[Path], depth: int = 0) -> Iterator[Path]:
        yield from files
        for path in folders if depth < MAX_DEPTH else ():
            yield from self._tree(*self._list(path), depth + 1)

    def _add(self, path: Path, files: list[Path], *, is_folder: bool) -> None:
        is_root = path == self.root
        name = self.root.resolve().name if is_root else path.relative_to(self.root).as_posix()
        step = step_of(name if is_root else path.name)
        self.window.checkpoints.append(FoundCheckpoint(shown_name(name), files, step, is_folder, is_root))

    def _list(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """Return files and folders by name, without temporary or hidden ones and links inside the root."""
        files: list[Path] = []
        folders: list[Path] = []
        try:
            with os.scandir(folder) as scanned:
                entries = sorted(islice(scanned, MAX_FILES), key=lambda entry: entry.name)
        except OSError as error:
            raise UnreadableError(f"cannot list {folder}: {error.strerror or error}") from None
        for entry in entries:
            self.count += 1
            if self.count > MAX_FILES:
                self.window.cut = True
                break
            self._sort(entry, files, folders)
        return files, folders

    def _sort(self, entry: "os.DirEntry[str]", files: list[Path], folders: list[Path]) -> None:
        path = Path(entry.path)
        if TEMPORARY.search(entry.name):
            self.window.left_over += [path] if LIKE_ONE.search(entry.name) else []
        elif entry.name.startswith(".") and entry.name != ".metadata":
            return
        elif entry.is_symlink() and (target := _inside(path, self.root)) is not None:
            self.window.links.append((path, target))
        elif path.is_dir() and entry.is_symlink():
            self.window.links.append((path, "a folder elsewhere, which is not looked into"))
        elif path.is_dir():
            folders.append(path)
        elif entry.name.lower().endswith(".sha256") or entry.name.upper() in ("SHA256SUMS", "SHA256SUMS.TXT"):
            self.window.sums.append(path)
        else:
            files.append(path)


def _groups(files: list[Path], data: list[Path]) -> Iterator[list[Path]]:
    """Yield the files of each checkpoint in a folder of several: files with a role in their name are grouped by step."""
    by_step: dict[int, list[Path]] = {}
    for path in files:
        if (match := ROLE.search(path.name)) and (path in data or path.suffix == ".json"):
            by_step.setdefault(int(match[1]), []).append(path)
    grouped = {path for group in by_step.values() for path in group}
    for group in by_step.values():
        if any(path in data for path in group):
            yield sorted(group, key=lambda path: path not in data)  # it is named after its first file with tensors
    yield from ([path] for path in data if path not in grouped)


def _inside(path: Path, root: Path) -> str | None:
    """Return the target of a link, if it exists and is inside the root."""
    try:
        target = path.resolve(strict=True)
        return target.relative_to(root.resolve()).as_posix()
    except (OSError, RuntimeError, ValueError):
        return None
