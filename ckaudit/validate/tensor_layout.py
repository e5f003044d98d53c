"""The tensors of a checkpoint, reduced to what must stay the same from one checkpoint to the next."""

from typing import Any

from msgspec import UNSET, Struct, field

from ckaudit.contract.io.columns import EMPTY, Column, SectionColumns


class Layout(Struct, frozen=True):
    """The tensors of a checkpoint: what must stay the same from one checkpoint to the next.

    Attributes:
        names: Weight tensors, in the order of the file.
        shapes: The shape of each; empty where no tensor has one.
        dtypes: The element type of each; empty where no tensor has one.
        heads: Query heads by attention layer, as pairs.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    dtypes: tuple[str | None, ...]
    heads: tuple[tuple[str, int], ...]

    def shape_of(self) -> dict[str, tuple[int, ...] | None]:
        """Return the shapes by name."""
        return dict(zip(self.names, self.shapes, strict=True)) if self.shapes else {}

    def dtype_of(self) -> dict[str, str | None]:
        """Return the element types by name."""
        return dict(zip(self.names, self.dtypes, strict=True)) if self.dtypes else {}


class Layouts(Struct):
    """Layouts met so far; equal ones are one object, so that a thousand checkpoints cost one."""

    _known: dict[Layout, Layout] = field(default_factory=dict)
    _columns: list[Column] = field(default_factory=list)
    _last: Layout | None = None

    def of(self, tables: dict[str, SectionColumns]) -> Layout | None:
        """Return the layout of a checkpoint's sections; None where it has neither weights nor attention."""
        weights, attention = tables.get("weights", EMPTY), tables.get("attention", EMPTY)
        if not weights.names and not attention.names:
            return None
        columns = [weights.names, *(weights.columns.get(name, ()) for name in ("shape", "dtype"))]
        columns += [attention.names, attention.columns.get("heads", ())]
        if self._last is None or columns != self._columns:
            layout = _layout(*columns)
            self._columns, self._last = columns, self._known.setdefault(layout, layout)
        return self._last


def _layout(names: Column, shapes: Column, dtypes: Column, layers: Column, heads: Column) -> Layout:
    return Layout(
        names=names,
        shapes=tuple(None if shape is UNSET else tuple(shape) for shape in shapes),
        dtypes=tuple(_or_none(dtype) for dtype in dtypes),
        heads=tuple((name, count) for name, count in zip(layers, heads, strict=False) if count is not UNSET),
    )


def _or_none(value: Any) -> Any:
    return None if value is UNSET else value
