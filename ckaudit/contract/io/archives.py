"""Archives, which hold files or a folder and are none of them: told by their first bytes."""

_MARKS = (
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a rar archive"),
    (0, b"\xfd7zXZ\x00", "packed with xz"),
    (0, b"BZh", "packed with bzip2"),
)  # where a mark stands, the mark, and what it says

UNPACK = "Unpack it, and name what comes out: a run folder, or a log."


def archive_of(data: bytes) -> str | None:
    """Return what kind of archive this is, as the end of a sentence; None: none that is known.

    Args:
        data: The first bytes of a file, 300 or more where it has them. What `.gz` and `.zst` pack is to be unpacked already.
    """
    return next((what for at, mark, what in _MARKS if data.startswith(mark, at)), None)
