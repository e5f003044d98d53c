"""Recorded trainings, one file each, so that scoring needs no training."""

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ckaudit.errors import UnreadableError
from ckaudit.lab import archive
from ckaudit.lab.fingerprint import Made, differences, made, must_be_trained_again
from ckaudit.lab.training_spec import Recipe

State = Literal["missing", "unreadable", "stale", "older", "fresh"]
LEFT_OUT = ("reference.npz",)  # read by a recorder that resumes, never by an audit


class CachedTraining(Struct, frozen=True, kw_only=True):
    """What the cache has of one training.

    Attributes:
        recipe: The training.
        path: Its file, there or not.
        state: "stale": of another change or plan; "older": of another loop or recorder, good enough to be scored.
        why: What is not as it was, or what is wrong with the file.
    """

    recipe: Recipe
    path: Path
    state: State
    why: str = ""

    @property
    def usable(self) -> bool:
        """Whether it can be scored."""
        return self.state in ("fresh", "older")


def default_folder() -> Path:
    """Return where recordings are kept: `$XDG_CACHE_HOME/ckaudit/lab`, or `~/.cache/ckaudit/lab`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "ckaudit" / "lab"


def look(cache: Path, recipe: Recipe) -> CachedTraining:
    """Return what the cache has of a training."""
    path = cache / f"{recipe.name}.{recipe.seed}.tar.zst"
    if not path.exists():
        return CachedTraining(recipe=recipe, path=path, state="missing")
    try:
        then = msgspec.json.decode(archive.read_made(path), type=Made)
    except (UnreadableError, msgspec.DecodeError) as error:
        return CachedTraining(recipe=recipe, path=path, state="unreadable", why=str(error))
    now = made(recipe)
    if not (why := ", ".join(differences(then, now))):
        return CachedTraining(recipe=recipe, path=path, state="fresh")
    return CachedTraining(recipe=recipe, path=path, state="stale" if must_be_trained_again(then, now) else "older", why=why)


def keep(cache: Path, recipe: Recipe, folder: Path) -> int:
    """Put a run folder into the cache and return the size of its file in bytes."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{recipe.name}.{recipe.seed}.tar.zst"
    return archive.write(folder, msgspec.json.encode(made(recipe)), path, without=LEFT_OUT)
