"""Packed logs that grow: what was added is unpacked as it comes, frame after frame, and a cut-off end is waited for."""

import zlib
from typing import Any

from ckaudit.contract.files import MAX_BYTES, MAX_RATIO, MAX_WINDOW

AT_ONCE = 4096  # packed bytes: whatever they hold, it fits into memory


class Unpacker:
    """Unpacks one file, from its beginning, as far as it was written.

    Attributes:
        broken: Why nothing more can be had of it; empty: more can.
    """

    def __init__(self, suffix: str) -> None:
        """Begin; the suffix, `.gz` or `.zst`, tells how the file is packed."""
        self.broken = ""
        self._suffix = suffix
        self._frame: Any = self._begun()
        self._taken = self._given = 0

    def more(self, data: bytes) -> bytes:
        """Return what the next bytes of the file hold, empty where that is not known before still further ones."""
        found: list[bytes] = []
        for start in range(0, len(data), AT_ONCE):
            self._piece(data[start : start + AT_ONCE], found)
            if self.broken:
                break
        return b"".join(found)

    def _piece(self, data: bytes, found: list[bytes]) -> None:
        self._taken += len(data)
        while data:
            if self._frame.eof:
                self._frame = self._begun()
            try:
                found.append(self._frame.decompress(data))
            except Exception as error:  # noqa: BLE001  each kind of packing has an error of its own
                self.broken = str(error)
                return
            self._given += len(found[-1])
            data = self._frame.unused_data
        if self._given > max(MAX_BYTES, MAX_RATIO * self._taken):
            self.broken = f"unpacked, it is more than {MAX_RATIO} times as large"

    def _begun(self) -> Any:
        """Return what unpacks one frame."""
        if self._suffix == ".gz":
            return zlib.decompressobj(wbits=31)
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
