"""Pickles are read without being done: what they say is what unpickling gives, and nothing runs."""

import collections
import os
import pickle
import pickletools
import random

import pytest

from ckaudit.resume.content import BadPickle, DictPairs, PickledCall, parts
from ckaudit.resume.examine import is_allowed
from ckaudit.resume.pickled import read_pickle


class Runs:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def plain(value):
    """Return records as the values that they stand for."""
    if isinstance(value, DictPairs):
        return {plain(key): plain(item) for key, item in value.items}
    if isinstance(value, PickledCall):
        return (str(value.maker), plain(value.arguments))
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_what_unpickling_gives(protocol):
    shared = [1, -5, 2**70, 3.5]
    value = {
        "a": shared,
        "b": (1, (), (2,), (1, 2, 3, 4)),
        3: {"x": None, "y": [True, False]},
        "again": shared,
        "text": "h\u00e9\n'",
    }
    assert plain(read_pickle(pickle.dumps(value, protocol)).value) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_executed_and_the_name_is_told(tmp_path, protocol):
    data = pickle.dumps({"a": Runs(tmp_path / "done")}, protocol)
    facts = read_pickle(data)
    assert facts.names == (f"{os.system.__module__}.system",)
    assert set(facts.names) == facts.called
    assert not (tmp_path / "done").exists()
    pickle.loads(data)
    assert (tmp_path / "done").exists()


def test_objects_are_calls_with_their_state():
    facts = read_pickle(pickle.dumps(collections.OrderedDict(a=1), 2))
    assert isinstance(facts.value, PickledCall)
    assert facts.value.items == [("a", 1)]
    assert [(way, part) for way, part in parts(facts.value) if part == 1] == [(("a",), 1)]


@pytest.mark.parametrize(
    "nest",
    [
        b"]" * 50_000 + b"a" * 49_999,
        b"N" + b"\x85" * 100_000,
        b"}" * 50_000 + b"\x8c\x01ab",
        b"cos\nsystem\n" + b")\x81" * 50_000,
    ],
)
def test_deep_and_odd_pickles_are_bounded(nest):
    try:
        facts = read_pickle(b"\x80\x04" + nest + b".")
    except BadPickle:
        return
    assert sum(1 for _ in parts(facts.value)) <= 100


def test_a_pickle_that_holds_itself_ends():
    loop = []
    loop.append(loop)
    assert sum(1 for _ in parts(read_pickle(pickle.dumps(loop)).value)) == 1


def test_any_change_gives_records_or_one_error():
    data = pickle.dumps({"a": [1, 2.5, "x"], "b": collections.OrderedDict(c=(1, 2)), "d": {1, 2}}, 4)
    whole = pickletools.optimize(data)
    for end in range(len(whole)):
        with pytest.raises(BadPickle):
            read_pickle(whole[:end])
    chance = random.Random(0)
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            list(parts(read_pickle(bytes(broken)).value))
        except BadPickle:
            continue


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("torch.FloatStorage", True),
        ("torch._utils._rebuild_parameter", True),
        ("collections.OrderedDict", True),
        ("numpy._core.multiarray._reconstruct", True),
        ("torch.bfloat16", True),
        ("builtins.set", True),
        ("builtins.eval", False),
        ("builtins.getattr", False),
        ("posix.system", False),
        ("torch.load", False),
        ("torch.hub.load", False),
        ("torch.utils.cpp_extension.load", False),
        ("numpy.load", False),
        ("subprocess.Popen", False),
        ("torch.distributed.checkpoint.metadata.Metadata", True),
        ("xtorch.FloatStorage", False),
        ("torch.Size\n", False),
        ("torch.distributed.launch.main", False),
        ("transformers.trainer_utils.set_seed", False),
    ],
)
def test_the_list_is_closed(name, allowed):
    assert is_allowed(name) == allowed
