"""The run at an address, for its recorder: which files are uploaded, in which order, and what an earlier start left there."""

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import time_ns

import msgspec

from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, REFERENCE_NAME, SCALARS_NAME, SCALARS_PATTERN
from ckaudit.recorder.files.log_segments import SEGMENT_BYTES, LogSegments, end_of_segments, is_segment
from ckaudit.recorder.files.manifest import history_name, is_later, writer_of
from ckaudit.remote.location import shown
from ckaudit.remote.put import Refused, RemoteFolder
from ckaudit.remote.spool import Journal, Sent, Spool, Stretch, make_room

SETTLED_NANOSECONDS = 10**9
"""Nanoseconds after which an unchanged modification time of a folder can be trusted: file systems have coarse clocks."""

PARALLEL_UPLOADS = 8
"""Files that are uploaded in parallel if more than this number are pending."""

CHECKPOINTS = 2  # position of the run's own checkpoints in the upload order

_AT_END = {"end", "write_errors", "checkpoint_ok", "first_write_error", "look_errors", "first_look_error"}


class RemoteRun:
    """The run in a spool, and the copy at its address.

    Args:
        spool: The spool that holds the run.
        rank: The rank whose files are uploaded; the first rank uploads all files but those of other ranks.
    """

    def __init__(self, spool: Spool, *, rank: int = 0) -> None:
        self.spool, self.journal = spool, Journal(spool.folder / f"put-{rank}.jsonl")
        self._rank, self._remote = rank, RemoteFolder(spool.address)
        self._log = LogSegments(spool.run / SCALARS_NAME, self._remote)
        self._is_checked = rank > 0
        self._fetch_lock, self._may_not_fetch = Lock(), False
        self._changed = 0  # modification time of the run folder when it was last listed
        self._size = self._room = -1.0
        self.progress = 0  # files uploaded or downloaded
        self.stale: Path | None = None  # where a local run was moved that exists nowhere else

    def load(self) -> None:
        """Read the journal of earlier starts."""
        self.journal = Journal.load(self.journal.path)

    # An earlier start, on this machine or another one.
    def fetch_earlier_run(self) -> set[str]:
        """Replace the run folder by the run at the address, if another machine continued it.

        Returns:
            The names of the files at the address.
        """
        names = self._remote.sizes()
        has_lost = MANIFEST_NAME in names and not (self.spool.run / MANIFEST_NAME).exists()
        if self._is_known(names) and not has_lost:
            self._is_checked = True
            return {*names}
        fetched = self._fetch(names)
        with self._fetch_lock:
            if self._may_not_fetch:
                raise Refused(self._other_run())
            self._set_aside_stale()
            shutil.rmtree(self.spool.run, ignore_errors=True)
            fetched.replace(self.spool.run)
            self._is_checked = True
        return {*names}

    def forbid_fetching(self) -> None:
        """Keep the run folder as it is from now on, because the training begins."""
        with self._fetch_lock:
            self._may_not_fetch = True

    def _is_known(self, names: dict[str, int]) -> bool:
        """Tell whether the run at the address was written from this spool alone, or the address has no run."""
        if MANIFEST_NAME in names:
            manifest = self._remote.read(MANIFEST_NAME)
            return _hash(manifest) in self.journal.manifests or _read(self.spool.run / MANIFEST_NAME) == manifest
        # Files uploaded from here are gone, or the files there belong to another run.
        return not (self.journal.sent or self.journal.lines or any(map(_is_of_run, names)))

    def _fetch(self, names: dict[str, int]) -> Path:
        """Return a folder with the remote files that a resume needs, and start a journal that lists the others."""
        folder, journal = self.spool.folder / ".fetched", self.journal.path
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if journal.exists():
            journal.replace(journal.with_suffix(".old"))
        self.journal = Journal(journal)
        for name in (MANIFEST_NAME, REFERENCE_NAME):
            if name in names:
                (folder / name).write_bytes(self._remote.read(name))
                self.progress += 1
        if REFERENCE_NAME in names:
            self.journal.add(REFERENCE_NAME, sent=_sent(folder / REFERENCE_NAME))
        if MANIFEST_NAME in names:
            self._note_manifest((folder / MANIFEST_NAME).read_bytes())
        self._fetch_lines(names, folder)
        for name, size in names.items():
            if name not in (MANIFEST_NAME, REFERENCE_NAME) and not is_segment(name):
                self.journal.add(name, sent=Sent(size, 0), is_freed=True)
        return folder

    def _fetch_lines(self, names: dict[str, int], folder: Path) -> None:
        segments = [name for name in sorted(names) if is_segment(name)]
        if not segments:
            return
        with (folder / SCALARS_NAME).open("wb") as log:
            for name in segments:
                start = log.tell()
                for at in range(0, names[name], SEGMENT_BYTES):
                    log.write(self._remote.read(name, at, min(at + SEGMENT_BYTES, names[name])))
                    self.progress += 1
                self.journal.add(name, lines=Stretch(start, log.tell()))

    def _set_aside_stale(self) -> None:
        """Keep an incompletely uploaded run whose address another recorder has written to."""
        if self.spool.is_complete or not (self.spool.run / MANIFEST_NAME).exists():
            return
        number = sum(1 for _ in self.spool.folder.glob("stale-*"))
        self.stale = self.spool.folder / f"stale-{number:03d}"
        self.spool.run.rename(self.stale)

    def set_aside(self, start_step: int, names: set[str], local_names: set[str]) -> None:
        """Note which checkpoints at the address a resume supersedes; local ones are renamed already.

        Args:
            start_step: The step that the run resumes from.
            names: The files at the address.
            local_names: The files that were in the run folder.
        """
        for name in sorted(names | self.journal.sent.keys()):
            if is_later(name, start_step):
                is_alone = name not in local_names and name in names | self.journal.freed
                self.journal.add(name, is_gone=True, is_aside=is_alone and not self._rank)

    # New files are uploaded in an order in which a reader never sees less than a killed run would have left.
    def upload(self, *, recheck_all: bool = False, may_lack_manifest: bool = True) -> None:
        """Upload new and changed files.

        A log line is never uploaded before its checkpoint or its session. The end of a session is uploaded last.

        Args:
            recheck_all: Whether files uploaded before are compared again.
            may_lack_manifest: Whether files are uploaded without a `run.json`; while a run begins, they wait for it.

        Raises:
            Refused: If the address holds another run.
        """
        self._check()
        if self._rank:
            self._upload_new_files(recheck_all=recheck_all)
            return
        end = self._log.end(self.journal)
        manifest = _read(self.spool.run / MANIFEST_NAME)
        if manifest is None and not may_lack_manifest:
            return
        for name in sorted(self.journal.aside):
            self._rename_to_history(name)
        self._begin_session(manifest)
        self._upload_new_files(recheck_all=recheck_all)
        for _ in self._log.put(end, self.journal):
            self.progress += 1
        self._upload_manifest(manifest)

    def _check(self) -> None:
        """Check that the address holds no other run, if that was not possible at the start."""
        if self._is_checked:
            return
        if not self._is_known(self._remote.sizes()):
            raise Refused(self._other_run())
        self._is_checked = True

    def _other_run(self) -> str:
        where, folder = shown(self.spool.address), shlex.quote(str(self.spool.run))
        return (
            f"{where} holds another run, which this one must not replace: `ckaudit push {folder} --to ADDRESS` puts it elsewhere"
        )

    def _begin_session(self, manifest: bytes | None) -> None:
        """Upload a run.json that has the new session, but not its end, before any file of the session."""
        if manifest is None:
            return
        document = msgspec.json.decode(manifest)
        sessions = document.get("sessions") or []
        if len(sessions) <= self.journal.sessions and self.journal.manifest:
            return
        facts = sessions[-1] if sessions else {}
        if _AT_END & facts.keys():
            for name in _AT_END:
                facts.pop(name, None)
            manifest = encode(document)
        self._upload_manifest(manifest)

    def _upload_manifest(self, manifest: bytes | None) -> None:
        if manifest is None or _hash(manifest) == self.journal.manifest:
            return
        # Noted before the upload: a process killed in between must recognise its own run.
        self.journal.manifests.add(_hash(manifest))
        self.journal.add(MANIFEST_NAME, manifest=self.journal.manifest, sessions=self.journal.sessions)
        self._remote.put(MANIFEST_NAME, manifest)
        self._note_manifest(manifest)
        self.progress += 1

    def _note_manifest(self, manifest: bytes) -> None:
        sessions = msgspec.json.decode(manifest).get("sessions") or []
        self.journal.add(MANIFEST_NAME, manifest=_hash(manifest), sessions=len(sessions))

    def _upload_new_files(self, *, recheck_all: bool) -> None:
        changed = self.spool.run.stat().st_mtime_ns
        if changed == self._changed and not recheck_all:
            return
        names = sorted(self._new_files(recheck_all=recheck_all), key=_turn)
        if len(names) > PARALLEL_UPLOADS:  # many are pending, as after a lost connection
            count = sum(_turn(name)[0] < CHECKPOINTS for name in names)
            names, at_once = names[:count], names[count:]
        else:
            at_once = []
        for name in names:
            self._upload_file(name)
        self._upload_in_parallel(at_once)
        # A file created within the same tick of the file system's clock does not change the folder's modification time.
        self._changed = changed if time_ns() - changed > SETTLED_NANOSECONDS else 0

    def _new_files(self, *, recheck_all: bool) -> Iterator[str]:
        with os.scandir(self.spool.run) as entries:
            for entry in entries:
                known = self.journal.sent.get(entry.name)
                if self._is_mine(entry.name) and (known is None or recheck_all) and entry.is_file():
                    status = entry.stat()
                    if known != Sent(status.st_size, status.st_mtime_ns):
                        yield entry.name

    def _is_mine(self, name: str) -> bool:
        if name.startswith(".") or name in (MANIFEST_NAME, SCALARS_NAME):
            return False
        match = CHECKPOINT_NAME.match(name)
        rank = int(match["rank"] or 0) if match and not match["session"] else 0
        return rank == self._rank

    def _upload_in_parallel(self, names: Sequence[str]) -> None:
        """Upload files whose order does not matter, several at a time.

        Raises:
            Exception: The error of the first failed file; the other files of the same batch are uploaded and noted.
        """
        with ThreadPoolExecutor(PARALLEL_UPLOADS, thread_name_prefix="ckaudit uploader") as pool:
            for start in range(0, len(names), PARALLEL_UPLOADS):
                turn = {name: pool.submit(self._upload_unchecked, name) for name in names[start : start + PARALLEL_UPLOADS]}
                failures = [error for future in turn.values() if (error := future.exception())]
                for name, future in turn.items():
                    if future.exception() is None:
                        self._note_sent(name, future.result())
                if failures:
                    raise failures[0]

    def _upload_unchecked(self, name: str) -> Sent | None:
        """Upload a file, and return its size and time; None: a resume has renamed it since."""
        path = self.spool.run / name
        try:
            sent, data = _sent(path), path.read_bytes()
        except FileNotFoundError:
            return None
        self._remote.put(name, data)
        return sent

    def _note_sent(self, name: str, sent: Sent | None) -> None:
        if sent is not None:
            self.journal.add(name, sent=sent)
            self._size += sent.size
            self.progress += 1

    def _upload_file(self, name: str) -> None:
        self._note_sent(name, self._upload_unchecked(name))
        match = CHECKPOINT_NAME.match(name)
        if match and match["session"]:
            replaced = name.replace(f".session{match['session']}", "", 1)
            if not (self.spool.run / replaced).exists():
                self._remote.remove(replaced)
                self.journal.add(replaced, is_gone=True)

    def _rename_to_history(self, name: str) -> None:
        """Rename a superseded checkpoint at the address, as a resume does locally."""
        copy = self.spool.folder / f".aside-{name}"
        with suppress(FileNotFoundError):
            copy.write_bytes(data := self._remote.read(name))
            self._remote.put(history_name(name, writer_of(copy, max(0, self.journal.sessions - 1))), data)
            self._remote.remove(name)
            copy.unlink()
        self.journal.add(name, is_gone=True)

    # The local disk.
    def free(self) -> None:
        """Delete uploaded checkpoints, the oldest first, if the spools exceed their limit."""
        if not self.spool.run.is_relative_to(self.spool.folder) or (self._size >= 0 and self._size <= self._room):
            return
        self._room, self._size = make_room(self.spool), float(self.spool.size())
        for name in sorted(self.journal.sent.keys() - self.journal.freed):
            if self._size <= self._room:
                return
            if CHECKPOINT_NAME.match(name):
                self._free(name)

    def _free(self, name: str) -> None:
        path = self.spool.run / name
        with suppress(OSError):
            if (sent := _sent(path)) == self.journal.sent[name]:
                self.journal.add(name, is_freed=True)
                path.unlink()
                self._size -= sent.size

    def waiting(self) -> list[str]:
        """Return the names of files whose current content is not uploaded."""
        if not self.spool.run.is_dir():
            return []
        names = [*self._new_files(recheck_all=True)]
        if not self._rank and self._log.end(self.journal) != end_of_segments(self.journal):
            names.append(SCALARS_NAME)
        manifest = None if self._rank else _read(self.spool.run / MANIFEST_NAME)
        return [*names, MANIFEST_NAME] if manifest is not None and _hash(manifest) != self.journal.manifest else names


def _turn(name: str) -> tuple[int, str]:
    """Return the position of a file in the upload: the reference first, then superseded checkpoints, then checkpoints by step."""
    match = CHECKPOINT_NAME.match(name)
    return (0 if match is None else 1 if match["session"] else CHECKPOINTS), name


def _is_of_run(name: str) -> bool:
    """Tell whether a file belongs to a run; files of other ranks do not count, as they may arrive first."""
    match = CHECKPOINT_NAME.match(name)
    return name == MANIFEST_NAME or SCALARS_PATTERN.match(name) is not None or (match is not None and not match["rank"])


def _sent(path: Path) -> Sent:
    status = path.stat()
    return Sent(status.st_size, status.st_mtime_ns)


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
