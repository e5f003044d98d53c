"""The schema of JUnit files, which takes a fifth of a second to read: it is read where the first file is held against it."""

from functools import cache
from pathlib import Path


@cache
def junit_schema():
    """Return the schema, which has a method `validate`."""
    import xmlschema

    return xmlschema.XMLSchema(str(Path(__file__).parents[1] / "fixtures" / "vendor" / "junit-10.xsd"))
