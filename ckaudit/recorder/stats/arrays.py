"""Array operations that work on NumPy arrays and torch tensors alike, so that a statistic is written once for both.

torch is looked up, never imported: a caller that passes a tensor has loaded it.
"""

import math
import sys
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any  # numpy.ndarray or torch.Tensor

NUMPY_TYPES = frozenset(("float16", "float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"))
CHUNK = 2**18  # elements converted to float64 at a time: they fit into the L2 cache
ROW = 2**13  # elements of one product: above 10,000, OpenBLAS uses its own threads


def library(array: Array) -> Any:
    """Return the module whose functions take this array: numpy or torch."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def is_on_accelerator(array: Array) -> bool:
    """Tell whether the elements are in the memory of an accelerator."""
    return not isinstance(array, np.ndarray) and array.device.type != "cpu"


def is_sharded(array: Array) -> bool:
    """Tell whether an array is a DTensor sharded over ranks."""
    return hasattr(type(array), "to_local")


def local(array: Array) -> Array:
    """Return an array, or this rank's shard of a sharded one, without history; the whole would need the other ranks."""
    if not is_sharded(array):
        return array
    # With gradients this would be an operation of its own, and take ten times as long.
    with library(array).no_grad():
        return array.to_local().detach()


def dense(array: Array) -> Array:
    """Return an array, or this rank's shard of a sharded one, dense and without history.

    A complex one has a last dimension of real and imaginary part.
    """
    if isinstance(array, np.ndarray):
        return np.stack([array.real, array.imag], -1) if np.iscomplexobj(array) else array
    torch, values = library(array), local(array).detach()
    values = values if values.layout == torch.strided else values.to_dense()
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def real_shape(array: Array) -> tuple[int, ...]:
    """Return the shape of an array in real numbers: a complex element counts as two, side by side.

    Strides over `ravel` must be computed from this shape, or they would sample real parts only.
    """
    shape = tuple(array.shape)
    is_complex = np.iscomplexobj(array) if isinstance(array, np.ndarray) else array.is_complex()
    return (*shape[:-1], 2 * shape[-1] if shape else 2) if is_complex else shape


def ravel(array: Array) -> Array:
    """Return all elements in one dimension, without history, in their own dtype and, if possible, without a copy."""
    return dense(array).reshape(-1)


def flat(array: Array) -> Array:
    """Return all elements in one dimension, without history, as float32 or float64."""
    return to_wide_float(ravel(array))


def to_wide_float(values: Array) -> Array:
    """Return elements as float32 or float64, unchanged if they are one of these."""
    lib = library(values)
    if values.dtype in (lib.float32, lib.float64):
        return values
    return values.astype(np.float32) if lib is np else values.float()


def widest_float(array: Array) -> Any:
    """Return the dtype for sums: float64, but float32 on Apple's accelerators, which have no float64."""
    lib = library(array)
    return lib.float32 if lib is not np and array.device.type == "mps" else lib.float64


def to_float64(array: Array) -> Array:
    """Return the elements in the dtype of `widest_float`; an array of that dtype is returned itself."""
    kind = widest_float(array)
    return array.astype(kind, copy=False) if isinstance(array, np.ndarray) else array.to(kind)


def to_numpy(array: Array) -> NDArray[Any]:
    """Return the elements in CPU memory, without a copy if they are there."""
    elements: NDArray[Any] = array if isinstance(array, np.ndarray) else array.cpu().numpy()
    return elements


def all_to_numpy(arrays: Sequence[Array]) -> list[NDArray[Any]]:
    """Return `to_numpy` of each array; all arrays on one accelerator come in one transfer, so nothing waits for each.

    A dtype that NumPy lacks, such as bfloat16, becomes float32.
    """
    by_place = {place: to_numpy(_known_to_numpy(array)) for place, array in enumerate(arrays) if not is_on_accelerator(array)}
    by_device: dict[Any, list[int]] = {}
    for place, array in enumerate(arrays):
        if place not in by_place:
            by_device.setdefault(array.device, []).append(place)
    for places in by_device.values():
        of_device = [arrays[place] for place in places]
        by_place.update(zip(places, unpack_bytes(pack_bytes(of_device).cpu(), of_device), strict=True))
    return [by_place[place] for place in range(len(arrays))]


def _known_to_numpy(array: Array) -> Array:
    return array if isinstance(array, np.ndarray) or dtype_name(array) in NUMPY_TYPES else array.float()


def all_to_floats(numbers: Sequence[Any]) -> list[float]:
    """Return numbers as floats; tensors on an accelerator come in one transfer."""
    fetched = iter(all_to_numpy([number for number in numbers if hasattr(number, "requires_grad")]))
    return [float(next(fetched)) if hasattr(number, "requires_grad") else float(number) for number in numbers]


def to_device(values: NDArray[Any], device: Any) -> Array:
    """Return values as a tensor on a device, without waiting for the copy."""
    tensor = sys.modules["torch"].as_tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def pack_bytes(tensors: Sequence[Array]) -> Array:
    """Return the concatenated bytes of tensors of any dtypes and devices, on the device of the first."""
    torch, home = library(tensors[0]), tensors[0].device
    return torch.cat([tensor.contiguous().reshape(-1).view(torch.uint8).to(home, non_blocking=True) for tensor in tensors])


def unpack_bytes(packed_bytes: Array, tensors: Sequence[Array]) -> list[NDArray[Any]]:
    """Return tensors as NumPy arrays, of their dtypes and shapes, from the bytes of `pack_bytes` in CPU memory."""
    every_byte, end, unpacked = packed_bytes.numpy(), 0, []
    for tensor in tensors:
        start, end, name = end, end + tensor.numel() * tensor.itemsize, dtype_name(tensor)
        part = every_byte[start:end].copy()  # the start may be unaligned for the dtype
        elements = part.view(name) if name in NUMPY_TYPES else library(tensor).from_numpy(part).view(tensor.dtype).float().numpy()
        unpacked.append(elements.reshape(tuple(tensor.shape)))
    return unpacked


def as_numpy(array: Array) -> Array:
    """Return a tensor in CPU memory, without history, as a NumPy array: calls of NumPy cost half as much.

    A tensor of another dtype than float32 and float64, or on an accelerator, is returned itself.
    """
    if isinstance(array, np.ndarray) or array.device.type != "cpu":
        return array
    torch = library(array)
    return array.numpy() if array.dtype in (torch.float32, torch.float64) else array


def dense_as_numpy(array: Array) -> Array:
    """Return `as_numpy` of `dense`, with a fast path for the most common tensors: the checks take longer than the statistics."""
    torch: Any = sys.modules.get("torch")
    is_usual = torch is not None and type(array) in (torch.Tensor, torch.nn.Parameter) and array.dtype is torch.float32
    if is_usual and array.is_cpu and array.layout is torch.strided:
        return array.detach().numpy()
    return as_numpy(dense(array))


def pieces(values: Array, chunk: int = CHUNK) -> list[Array]:
    """Return chunks of a flat array, `chunk` elements each, none of them empty."""
    return [values[start : start + chunk] for start in range(0, values.shape[0], chunk)]


def extremes(values: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest element."""
    return (values.min(), values.max()) if isinstance(values, np.ndarray) else values.aminmax()


def square_sum(values: Array) -> Array:
    """Return the sum of squares of a flat array."""
    if not isinstance(values, np.ndarray):
        return values.dot(values)
    if values.size <= ROW:
        return _row_squares(values)
    whole = values.size - values.size % ROW
    return _row_squares(values[:whole].reshape(-1, ROW)).sum() + _row_squares(values[whole:])


def norm(values: Array) -> float:
    """Return the L2 norm of a flat array, summed in float64."""
    return math.sqrt(math.fsum(float(square_sum(x)) for x in map(to_float64, pieces(values))))


def row_norms(rows: Array) -> Array:
    """Return the L2 norm of each row, summed in float64, shape (N, D) to (N,)."""
    if not isinstance(rows, np.ndarray):
        torch = library(rows)
        return torch.linalg.vector_norm(rows, dim=-1, dtype=widest_float(rows))
    wide = to_float64(rows)
    norms: NDArray[np.float64] = np.sqrt(_row_squares(wide))
    return norms


def _row_squares(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of squares of each row, shape (..., D) to (...), without threads, which would compete with the training."""
    # NumPy has `vecdot` since version 2; it takes a quarter of the time.
    if rows.shape[-1] > ROW or not hasattr(np, "vecdot"):
        return np.asarray(np.einsum("...d,...d->...", rows, rows))
    return np.asarray(np.vecdot(rows, rows))


def bytes_hash(array: Array, *, size: int = 16) -> str:
    """Return a hash of an array's exact bytes: "blake2b:" and `size` bytes in hexadecimal."""
    values = dense(array)
    if not isinstance(values, np.ndarray):
        values = values.cpu().contiguous().reshape(-1).view(library(values).uint8).numpy()
    return f"blake2b:{blake2b(np.ascontiguousarray(values).reshape(-1).view(np.uint8), digest_size=size).hexdigest()}"  # type: ignore[arg-type]


def dtype_name(array: Array) -> str:
    """Return the dtype as the contract names it, such as bfloat16."""
    return str(array.dtype).removeprefix("torch.")
