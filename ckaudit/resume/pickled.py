"""Reads a pickle without executing it: its opcodes build plain records, and nothing is imported or called."""

import pickletools
from collections.abc import Callable
from typing import Any

from ckaudit.resume.content import BadPickle, DictPairs, ImportedName, PersistentId, PickledCall, PickleFacts

MAX_BYTES = 64 * 2**20  # the pickle of 50,000 tensors has 8 MB
MAX_OPCODES = 3_000_000  # 30 for each of 100,000 tensors


def read_pickle(data: bytes) -> PickleFacts:
    """Return the content of a pickle.

    Raises:
        BadPickle: If it is broken, or larger than any checkpoint's.
    """
    if len(data) > MAX_BYTES:
        raise BadPickle(f"has {len(data):,} bytes; the limit is {MAX_BYTES:,}")
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_OPCODES:
                raise BadPickle(f"has more than {MAX_OPCODES:,} opcodes")
            machine.do(opcode.name, argument)
        value = machine.stack[-1]
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadPickle(str(error) or type(error).__name__) from None
    return PickleFacts(value, tuple(machine.names), frozenset(machine.called))


class _Machine:
    """The stack machine of pickle, working on records."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.names: dict[str, ImportedName] = {}
        self.called: set[str] = set()

    def do(self, opcode: str, argument: Any) -> None:
        if opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _LITERALS:
            self.stack.append(argument)
        elif action := _ACTIONS.get(opcode):
            action(self, argument)
        else:
            raise BadPickle(f"opcode {opcode} is not known")

    def above_mark(self) -> list[Any]:
        top, self.stack = self.stack, self.marks.pop()
        return top

    def named(self, module: Any, name: Any) -> ImportedName:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise BadPickle("something is imported by what is no name")
        imported = ImportedName(module, name)
        return self.names.setdefault(str(imported), imported)

    def call(self, maker: Any, given: Any, *, by_class: bool = False) -> PickledCall:
        if not by_class:
            self.called.add(str(maker) if isinstance(maker, ImportedName) else "something that is no name")
        return PickledCall(maker, given, by_class=by_class)


def _mark(machine: _Machine, _: Any) -> None:
    machine.marks.append(machine.stack)
    machine.stack = []


def _pop(machine: _Machine, _: Any) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.above_mark()


def _get(machine: _Machine, argument: Any) -> None:
    machine.stack.append(machine.memo[int(argument)])


def _put(machine: _Machine, argument: Any) -> None:
    machine.memo[int(argument)] = machine.stack[-1]


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _empty_list(machine: _Machine, _: Any) -> None:
    machine.stack.append([])


def _empty_dict(machine: _Machine, _: Any) -> None:
    machine.stack.append(DictPairs([]))


def _appends(machine: _Machine, _: Any) -> None:
    top = machine.above_mark()
    _extend(machine.stack[-1], top)


def _append(machine: _Machine, _: Any) -> None:
    value = machine.stack.pop()
    _extend(machine.stack[-1], [value])


def _extend(target: Any, values: list[Any]) -> None:
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, PickledCall):
        _add_pairs(target, [(None, value) for value in values])
    else:
        raise BadPickle("elements are added to what is no list")


def _set_items(machine: _Machine, _: Any) -> None:
    top = machine.above_mark()
    _add_pairs(machine.stack[-1], list(zip(top[::2], top[1::2], strict=True)))


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _add_pairs(machine.stack[-1], [(key, value)])


def _add_pairs(target: Any, pairs: list[tuple[Any, Any]]) -> None:
    if isinstance(target, DictPairs):
        target.items.extend(pairs)
    elif isinstance(target, PickledCall):
        target.items = target.items or []
        target.items.extend(pairs)
    else:
        raise BadPickle("items are set on what is no dictionary")


def _dict(machine: _Machine, _: Any) -> None:
    top = machine.above_mark()
    machine.stack.append(DictPairs(list(zip(top[::2], top[1::2], strict=True))))


def _list(machine: _Machine, _: Any) -> None:
    top = machine.above_mark()
    machine.stack.append(top)


def _tuple(machine: _Machine, _: Any) -> None:
    top = tuple(machine.above_mark())
    machine.stack.append(top)


def _last(count: int) -> Callable[[_Machine, Any], None]:
    def make(machine: _Machine, _: Any) -> None:
        if len(machine.stack) < count:
            raise BadPickle("the stack is empty")
        top = tuple(machine.stack[-count:])
        del machine.stack[-count:]
        machine.stack.append(top)

    return make


def _global(machine: _Machine, argument: Any) -> None:
    module, _, name = str(argument).partition(" ")
    machine.stack.append(machine.named(module, name))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.named(module, name))


def _extension(machine: _Machine, argument: Any) -> None:
    machine.stack.append(machine.named("copyreg", f"extension {argument}"))


def _reduce(machine: _Machine, _: Any) -> None:
    given, maker = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.call(maker, given))


def _new(machine: _Machine, _: Any) -> None:
    given, maker = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.call(maker, given, by_class=True))


def _new_with_names(machine: _Machine, _: Any) -> None:
    names, given, maker = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.call(maker, (given, names), by_class=True))


def _instance(machine: _Machine, argument: Any) -> None:
    module, _, name = str(argument).partition(" ")
    given = tuple(machine.above_mark())
    machine.stack.append(machine.call(machine.named(module, name), given))


def _object(machine: _Machine, _: Any) -> None:
    maker, *given = machine.above_mark()
    machine.stack.append(machine.call(maker, tuple(given)))


def _build(machine: _Machine, _: Any) -> None:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if isinstance(target, PickledCall):
        target.state = state


def _persistent(machine: _Machine, _: Any) -> None:
    machine.stack.append(PersistentId(machine.stack.pop()))


def _named_persistent(machine: _Machine, argument: Any) -> None:
    machine.stack.append(PersistentId(argument))


def _duplicate(machine: _Machine, _: Any) -> None:
    machine.stack.append(machine.stack[-1])


def _nothing(_machine: _Machine, _: Any) -> None:
    """Do nothing: the opcode frames others, or ends the pickle."""


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "NEXT_BUFFER": None}
_LITERALS = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
    ]
)
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _mark,
    "POP": _pop,
    "POP_MARK": lambda machine, _: (machine.above_mark(), None)[1],
    "DUP": _duplicate,
    "GET": _get,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "MEMOIZE": _memoize,
    "EMPTY_LIST": _empty_list,
    "EMPTY_DICT": _empty_dict,
    "EMPTY_SET": _empty_list,
    "APPEND": _append,
    "APPENDS": _appends,
    "ADDITEMS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "DICT": _dict,
    "LIST": _list,
    "FROZENSET": _list,
    "TUPLE": _tuple,
    "TUPLE1": _last(1),
    "TUPLE2": _last(2),
    "TUPLE3": _last(3),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "EXT1": _extension,
    "EXT2": _extension,
    "EXT4": _extension,
    "REDUCE": _reduce,
    "NEWOBJ": _new,
    "NEWOBJ_EX": _new_with_names,
    "INST": _instance,
    "OBJ": _object,
    "BUILD": _build,
    "BINPERSID": _persistent,
    "PERSID": _named_persistent,
    "PROTO": _nothing,
    "FRAME": _nothing,
    "STOP": _nothing,
    "READONLY_BUFFER": _nothing,
}
