"""What unpickling a checkpoint may import: a closed list, everything else is told."""

import re
import sys

from ckaudit.contract.report import Finding
from ckaudit.resume.catalogue import FOREIGN_CLASS, RUNS_CODE
from ckaudit.resume.content import Content

# What torch.load(weights_only=True) makes itself, and what trainers of wide use put beside their tensors.
ALLOWED = re.compile(
    r"torch\.(?:[A-Za-z0-9]+Storage|storage\.(?:Untyped|Typed)Storage|Size|device|dtype|Tensor|Generator|nn\.parameter\.Parameter"
    r"|_tensor\._rebuild_from_type_v2|serialization\._get_layout|_utils\._rebuild_\w+|_C\._rebuild_\w+"
    r"|(?:u?int|float|bfloat|complex|quint|qint)\d+\w*|bool|strided|per_\w+_\w+|contiguous_format|preserve_format"
    r"|distributed\.(?:checkpoint\.(?:metadata\.\w+|filesystem\._StorageInfo)|_?tensor(?:\.(?:_dtensor_spec|placement_types))?\.[A-Z]\w+"
    r"|device_mesh\.DeviceMesh))"
    r"|numpy(?:\._?core)?\.(?:multiarray\.(?:_reconstruct|scalar)|ndarray|dtype|bool_?|u?int\d*|float\d*|numeric\._frombuffer)"
    r"|numpy\.dtypes\.\w+DType|numpy\.random\._pickle\.__\w+_ctor|numpy\.random\._mt19937\.MT19937|numpy\.random\._pcg64\.PCG64"
    r"|_codecs\.encode|collections\.(?:OrderedDict|defaultdict|Counter|deque)"
    r"|(?:builtins|__builtin__)\.(?:set|frozenset|list|dict|tuple|int|float|bool|str|bytes|bytearray|complex|slice|range|object)"
    r"|copyreg\._reconstructor|copy_reg\._reconstructor|argparse\.Namespace|types\.SimpleNamespace"
    r"|pathlib(?:\._local)?\.(?:Pure)?(?:Posix|Windows)?Path|datetime\.(?:datetime|date|timedelta|timezone)"
    r"|transformers\.(?:training_args|trainer_utils|trainer_pt_utils)\.[A-Z]\w+"
    r"|megatron\.(?:core\.(?:transformer\.)?|legacy\.model\.|model\.)enums\.[A-Z]\w+"
    r"|accelerate\.(?:state|utils\.dataclasses)\.[A-Z]\w+|deepspeed\.\w[\w.]*\.(?:ZeroStageEnum|LossScaler|DynamicLossScaler)"
    r"|(?:lightning\.fabric|lightning_fabric|pytorch_lightning|lightning\.pytorch)\.utilities\.\w+\.AttributeDict"
)


def is_allowed(name: str) -> bool:
    """Tell whether a checkpoint may import a name.

    >>> is_allowed("torch._utils._rebuild_tensor_v2"), is_allowed("os.system"), is_allowed("torch.hub.load")
    (True, False, False)
    """
    return ALLOWED.fullmatch(name) is not None


def is_dangerous(name: str, called: frozenset[str]) -> bool:
    """Tell whether a name that is not allowed would do something: it is called, or the standard library's own.

    A class that is only made empty and filled needs its program, and does no more than that.
    """
    return name in called or name.partition(".")[0] in sys.stdlib_module_names


def judge_names(content: Content, file: str) -> list[Finding]:
    """Return what is wrong with the names that unpickling a file would import."""
    foreign = [name for name in (*content.names, *sorted(content.called - {*content.names})) if not is_allowed(name)]
    dangerous = [name for name in foreign if is_dangerous(name, content.called)]
    found = [
        RUNS_CODE.at(file, f"unpickling it would call {name}; nothing was executed here", where=name, found=name)
        for name in dangerous[:5]
    ]
    if len(dangerous) > 5:
        found.append(
            RUNS_CODE.at(file, f"unpickling it would call {len(dangerous) - 5:,} other names", found=", ".join(dangerous[5:50]))
        )
    if others := [name for name in foreign if name not in dangerous]:
        message = f"unpickling it needs {', '.join(others[:5])}" + (f" and {len(others) - 5:,} more" if len(others) > 5 else "")
        found.append(FOREIGN_CLASS.at(file, message, where=others[0], also=others[1:50]))
    return found
