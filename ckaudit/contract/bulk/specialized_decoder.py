"""A decoder specialized for the files of one run, which are mostly similar.

It is learned from one file without contradictions and knows only what that file records: names become slots instead of keys, and
optional fields become required. Whatever it accepts, the decoder of the whole contract accepts with the same values; files that
it refuses take the ordinary path. Columns are of two kinds: *packed* ones hold only numbers; *kept* ones, such as shapes and type
names, seldom change and are compared with those of the sample file.
"""

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, defstruct, json
from msgspec.structs import astuple

from ckaudit.contract.io.codec import quote_everywhere
from ckaudit.contract.io.columns import Column, SectionColumns, colons_in, keys_inside
from ckaudit.contract.schema.checkpoint import (
    ActivationStats,
    AttentionStats,
    BinRange,
    Checkpoint,
    DeltaStats,
    GradientStats,
    WeightStats,
)

ENTRIES: dict[str, type[Struct]] = {
    "weights": WeightStats,
    "gradients": GradientStats,
    "weight_deltas": DeltaStats,
    "activations": ActivationStats,
    "attention": AttentionStats,
}
UNKNOWN = "unknown_"
FieldKey = tuple[str, str]


class SectionLayout(Struct, frozen=True):
    """Known facts of one section before it is read.

    Attributes:
        names: Tensors or layers, in the order of their slots.
        fields: Fields of an entry, in the order of their slots.
        packed: Fields that hold only numbers in every entry.
        plain: Packed fields with one number per entry.
        complete: Fields that every entry records.
        kept: The other columns of the sample file.
        keys: Number of object keys, and of colons in names, without kept columns.
        colons: Number of object keys, and of colons in the text, of each kept column.
    """

    names: tuple[str, ...]
    fields: tuple[str, ...]
    packed: frozenset[str]
    plain: frozenset[str]
    complete: frozenset[str]
    kept: dict[str, Column]
    keys: int
    colons: dict[str, int]


class FileColumns(Struct, frozen=True):
    """Contents of one file.

    Attributes:
        document: Its head and its small sections; a large section is one object whose fields are the entries.
        tables: Its large sections as columns.
        changed: Kept columns that differ from the sample file, by section and field.
        unknown: Columns of unknown fields, by section ("" is the head) and key.
        text: Its text with bare words in quotes.
        bare_words: Number of bare words.
        colons: Number of colons that the large sections must have in the text.
    """

    document: Any
    tables: dict[str, SectionColumns]
    changed: frozenset[FieldKey]
    unknown: dict[FieldKey, Column]
    text: bytes
    bare_words: int
    colons: int


class SpecializedDecoder(Struct, frozen=True):
    """The decoder, and what turns its results into columns.

    Attributes:
        decoder: Decoder of documents.
        sections: Large sections by name.
        unknown: Unknown keys, by section and the field they are read into.
        words: Whether bare words must be quoted first.
    """

    decoder: json.Decoder[Any]
    sections: dict[str, SectionLayout]
    unknown: dict[FieldKey, str]
    words: bool

    def read(self, data: bytes) -> FileColumns | None:
        """Read one file; None if it does not fit the sample file."""
        text, words = quote_everywhere(data) if self.words else (data, 0)
        try:
            document = self.decoder.decode(text)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return None
        tables: dict[str, SectionColumns] = {}
        changed: list[FieldKey] = []
        unknown: dict[FieldKey, Column] = {}
        colons = 0
        for name, section in self.sections.items():
            rows = map(astuple, astuple(getattr(document, name)))
            columns: dict[str, Column] = dict(zip(section.fields, zip(*rows, strict=True), strict=True))
            new = [field for field, column in section.kept.items() if column != columns[field]]
            changed += [(name, field) for field in new]
            colons += 1 + section.keys + sum(section.colons.values())
            colons += sum(colons_of(field, columns[field]) - section.colons[field] for field in new)
            for owner, field in self.unknown:
                if owner == name:
                    unknown[owner, self.unknown[owner, field]] = columns.pop(field)
            tables[name] = _table(section, columns, new)
        unknown |= {("", key): (getattr(document, field),) for (owner, field), key in self.unknown.items() if not owner}
        if any(b":" in bytes(value) for column in unknown.values() for value in column if value is not UNSET):
            return None
        return FileColumns(document, tables, frozenset(changed), unknown, text, words, colons)


def _table(section: SectionLayout, columns: dict[str, Column], new: list[str]) -> SectionColumns:
    """Return the table of one section; `new` lists its changed kept columns."""
    complete = section.complete
    for field in [field for field in new if field in columns]:
        missing = columns[field].count(UNSET)
        complete = complete - {field} if missing else complete | {field}
        if missing == len(section.names):
            del columns[field]
    return SectionColumns(section.names, columns, complete, section.plain, section.keys)


def colons_of(field: str, column: Column) -> int:
    """Return the number of colons of a column's keys and texts in the text of a file without escapes."""
    return len(column) - column.count(UNSET) + keys_inside(field, column) + colons_in(column)


def build_decoder(
    tables: dict[str, SectionColumns], unknown: list[str], *, words: bool, max_entries: int = 4000
) -> SpecializedDecoder | None:
    """Build a decoder for files similar to a sample.

    Args:
        tables: The large sections of the sample.
        unknown: Paths of its unknown fields.
        words: Whether it holds bare words.
        max_entries: Largest number of entries per section; more of them in another order take longer to look up than to read.

    Returns:
        The decoder; None if a name needs escapes in JSON, or if there are too many names.
    """
    strangers = _strangers(unknown, tables)
    names = [*(name for columns in tables.values() for name in columns.names), *strangers.values()]
    if max((len(columns.names) for columns in tables.values()), default=0) > max_entries or not all(map(_writable, names)):
        return None
    sections = {name: _section(name, columns, strangers) for name, columns in tables.items()}
    hints = get_type_hints(Checkpoint, include_extras=True)
    members: list[Any] = []
    for field, hint in hints.items():
        if field in sections:
            members.append((field, _entries(field, sections[field], strangers)))
        elif field not in ENTRIES:
            members.append((field, hint) if field in ("schema_version", "step") else (field, hint, UNSET))
    members += [(field, Raw | UnsetType, UNSET) for section, field in strangers if not section]
    absent = {name: UNSET for name in ENTRIES if name not in sections}
    rename = {field: key for (section, field), key in strangers.items() if not section}
    kind = defstruct("Document", members, kw_only=True, rename=rename, namespace=absent)
    return SpecializedDecoder(json.Decoder(kind), sections, strangers, words)


def _writable(name: str) -> bool:
    """Tell whether a name needs no escapes in JSON."""
    return name.isprintable() and '"' not in name and "\\" not in name


def _strangers(unknown: list[str], tables: dict[str, SectionColumns]) -> dict[FieldKey, str]:
    """Return a slot for each unknown field of the head and of entries; deeper ones have none."""
    strangers: dict[FieldKey, str] = {}
    for index, path in enumerate(unknown):
        section, star, key = path.partition(".*.")
        if not star or section in tables:
            strangers[section if star else "", f"{UNKNOWN}{index}"] = key if star else path
    return strangers


def _section(name: str, columns: SectionColumns, strangers: dict[FieldKey, str]) -> SectionLayout:
    """Return the layout of a section, with its fields sorted into packed and kept ones."""
    packed = frozenset(field for field, column in columns.columns.items() if field in columns.complete and _numbers(column))
    order = [field for field in ENTRIES[name].__struct_fields__ if field in columns.columns]
    unpacked = {field: columns.columns[field] for field in order if field not in packed}
    size = len(columns.names)
    unpacked |= {field: (UNSET,) * size for section, field in strangers if section == name}
    keys = size + "".join(columns.names).count(":")
    keys += sum(size + keys_inside(field, columns.columns[field]) for field in packed)
    fields = (*order, *(field for field in unpacked if field not in order))
    colons = {field: colons_of(field, column) for field, column in unpacked.items()}
    plain = frozenset(field for field in packed if type(columns.columns[field][0]) is float)
    return SectionLayout(columns.names, fields, packed, plain, columns.complete, unpacked, keys, colons)


def _numbers(column: Column) -> bool:
    """Tell whether all values of a column are floats, lists of floats, or histograms of equal bins."""
    first = type(column[0])
    if first is float:
        return all(type(value) is float for value in column)
    if first is list:
        return all(type(item) is float for value in column for item in value)
    return hasattr(column[0], "bins") and all(
        type(value.bins) is BinRange and all(type(item) is float for item in (*value.bins.range, *value.counts))
        for value in column
    )


def _entries(name: str, section: SectionLayout, strangers: dict[FieldKey, str]) -> type[Struct]:
    """Return the type of a section: an object with a slot for each name."""
    hints = get_type_hints(ENTRIES[name], include_extras=True)
    members: list[Any] = []
    for field in section.fields:
        if field in section.packed:
            members.append((field, _bare(hints[field])))
        else:
            members.append((field, hints.get(field, Raw | UnsetType), UNSET))
    rename = {field: key for (owner, field), key in strangers.items() if owner == name}
    absent = {field: UNSET for field in hints if field not in section.fields}
    # Documents have no reference cycles, so the garbage collector need not track their objects.
    entry = defstruct("Entry", members, kw_only=True, gc=False, rename=rename, namespace=absent)
    slots = {f"slot_{index}": key for index, key in enumerate(section.names)}
    return defstruct("Entries", [(slot, entry) for slot in slots], rename=slots, gc=False)


def _bare(hint: Any) -> Any:
    """Return a type hint without absence and without the words for non-finite numbers."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_bare(inner[0]), *hint.__metadata__)]
    if origin in (Union, UnionType):
        choices = [choice for choice in inner if choice is not UnsetType and get_origin(choice) is not Literal]
        return _bare(BinRange if BinRange in choices else choices[0])
    if origin is list:
        return list[_bare(inner[0])]  # type: ignore[misc]
    if isinstance(hint, type) and "bins" in getattr(hint, "__struct_fields__", ()):
        members = [(name, _bare(part)) for name, part in get_type_hints(hint, include_extras=True).items()]
        return defstruct("Histogram", members, gc=False)
    return hint
