"""Files of torch and of safetensors by hand, whole or not."""

import struct
import zipfile


def torch_zip(path, pickle, members=(), *, method=zipfile.ZIP_STORED):
    """Write a file as torch does, around any pickle."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickle)
        for name, data in members:
            archive.writestr(f"archive/{name}", data)


def safetensors(path, header, data=b""):
    """Write a safetensors file with any header."""
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
