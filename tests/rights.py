"""A process of root that may enter and read no more than the modes of files say, as `setpriv --bounding-set` starts one."""

import ctypes
import os

VERSION = 0x20080522  # of the structures: two words of 32 rights each
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2
PR_CAPBSET_DROP = 24
_library = ctypes.CDLL(None, use_errno=True)
CAN_GIVE_UP = os.geteuid() != 0 or hasattr(_library, "capset")


def give_up() -> None:
    """Give up, for this process and all that it starts, the right to enter and to read everything, which only root has."""
    if os.geteuid():
        return
    for right in DAC_OVERRIDE, DAC_READ_SEARCH:  # or a program that it starts would have them again
        _must(_library.prctl(PR_CAPBSET_DROP, right, 0, 0, 0))
    head, sets = (ctypes.c_uint32 * 2)(VERSION, 0), (ctypes.c_uint32 * 6)()
    _must(_library.capget(head, sets))
    for place in range(2):  # those in effect, and those that may be put in effect
        sets[place] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    _must(_library.capset(head, sets))


def _must(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
