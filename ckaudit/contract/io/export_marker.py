"""How a table of scalars says that it is one of ours."""

MARK = "ckaudit.export"
"""Key in the metadata of a Parquet or Arrow file."""

WORDS = ":text"
"""Behind the name of a column that holds words."""

FIRST = ("step", "session")
"""The first columns, which a CSV is known by."""
