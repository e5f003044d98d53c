"""What the footer of a Parquet file says of sizes, held against itself before anything is read: memory is taken by its word.

Only facts of whole row groups are asked for: those of a column end the process where the footer is odd (pyarrow 26).
"""

from typing import Any

from ckaudit.contract.io.files import MAX_BYTES, MAX_RATIO


def false_size(metadata: Any, size: int) -> str | None:
    """Return why a file would take more memory than what is in it, None where it would not.

    Args:
        metadata: The footer, as pyarrow reads it.
        size: Bytes of the file.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for index, group in enumerate(groups):
        if group.total_byte_size > MAX_BYTES and group.total_byte_size > MAX_RATIO * size:
            return f"row group {index} unpacks {size:,} bytes to {group.total_byte_size:,}; it was not read"
    rows = [group.num_rows for group in groups]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0:
        return f"it is said to have {metadata.num_rows:,} rows, and its parts {sum(rows):,}"
    return None
