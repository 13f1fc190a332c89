"""The lm_head a chunk of rows at a time: logits in one workspace, and gradients from the gradients of the logits.

Shapes: R rows (tokens), C rows of a chunk, H hidden, V vocabulary.

    logits_CV    = hidden_CH @ weight.T + bias        `LogitChunks`, or softcap * tanh(of that / softcap)
    d hidden_CH  = d logits_CV @ weight               `HeadGradients`
    d weight    += d logits_CV.T @ hidden_CH          summed in its own dtype over few chunks, else in float32
    d bias      += d logits_CV.sum(0)                 summed in float32

On a CPU without bfloat16 instructions, bfloat16 operands are multiplied in float32, a part of the weight at a time, and
results are rounded once.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from outcome_rl_kernels.backends import call_native, native_obstacle
from outcome_rl_kernels.cpu_memory import empty
from outcome_rl_kernels.dtypes import bfloat16_products
from outcome_rl_kernels.loss.types import Head, Teacher, Wants

# Every chunk reads and writes d weight. On an H200, at 790 TFLOP/s and 4.3 TB/s, that is 1.5 % of the three products of
# 8192 bfloat16 rows.
_GPU_CHUNK_ROWS = 8192
_CPU_WORKSPACE_BYTES, _GPU_WORKSPACE_BYTES = 256 * 2**20, 2 * 2**30
_GPU_SMALL_WORKSPACE_BYTES = 512 * 2**20  # without d weight, chunks of this size keep a GPU as busy
# Every addition to d weight in its own dtype rounds it once more: eight cost bfloat16 2.1 times the error of one,
# 3.5e-3, where the rounding of logits to bfloat16 costs 1.5e-2. Beyond these, the sum is taken in float32.
_OWN_DTYPE_CHUNKS = 8
CPU_PART_ROWS = 4096
TILED_PART_ROWS = 512  # of the gradient's transpose: with 512 rows of logits, half a MiB
_CAPPED_PART = 2**22  # numbers that are capped at a time in float32: 16 MiB
# On the CPU rows are multiplied in fours, the last ones filled up with zeros: PyTorch's bfloat16 products take 1.25
# times as long for 427 and 511 rows as for 428 and 512; and MKL multiplies fewer than four by another routine, whose
# sums have another order, so that a row's logits would not have the same bits in chunks of any size.
_CPU_ROWS = 4
# A product with H = 4096 columns has 16 tiles for each 128 rows: 1024 rows keep the 132 multiprocessors of an H200 busy
# once, 4506 rows four times and a third. Row kernels, too, load 16 bytes at a time only from the start of a tile.
_TILE_ROWS = (1024, 128)
# On a GPU rows of the workspace begin at multiples of this, since products are slow where leading dimensions are odd.
_STRIDE = 64


class LogitChunks:
    """Iterate over ranges of rows with their logits (C, V); every chunk overwrites the last one.

    Args:
        head: hidden states of the rows, weight and bias.
        workspace_bytes: maximum bytes of logits at a time, but at least one row's; None takes up to 2 GiB on a GPU, 512
            MiB if the weight gets no gradient, and up to 256 MiB on the CPU. More are taken where the call then needs
            less memory: in chunks so few that the weight's gradient is summed in its own dtype.
        wants: which operands get a gradient.
        fp32_logits: float32 logits from operands of half precision.
        widest: rows of the largest shard of the head, because all ranks need the same chunks.
        softcap: of the logits. The gradients then get a room of their own, because they need the capped logits.
        teacher: of whose logits as many rows are held.

    All logits, and their gradients, are in one room, which is kept for later calls: on the CPU as `cpu_memory` says, on
    a GPU by PyTorch's allocator.
    """

    def __init__(
        self,
        head: Head,
        workspace_bytes: int | None,
        *,
        wants: Wants,
        fp32_logits: bool,
        widest: int,
        softcap: float | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self._head, weight = head, head.weight
        self._softcap, self._teacher = softcap, teacher or Teacher()
        dtype = torch.float32 if fp32_logits else weight.dtype
        dtypes = [dtype] if self._teacher.head is None else [dtype, dtype]
        self._shares_room = dtype == weight.dtype and softcap is None
        if not self._shares_room and any(wants):
            dtypes.append(weight.dtype)
        row_bytes = widest * sum(held.itemsize for held in dtypes)
        on_gpu = weight.device.type != "cpu"
        if workspace_bytes is None:
            workspace_bytes = _CPU_WORKSPACE_BYTES
            if on_gpu:
                limit = _GPU_WORKSPACE_BYTES if wants.weight else _GPU_SMALL_WORKSPACE_BYTES
                workspace_bytes = min(limit, _GPU_CHUNK_ROWS * row_bytes)
        rows = len(head.hidden)
        most = max(1, workspace_bytes // row_bytes)
        if wants.weight and weight.dtype.itemsize < 4:
            most = _most_rows(rows, most, row_bytes, widest * weight.shape[1] * weight.dtype.itemsize, tiles=on_gpu)
        self._size = _chunk_size(rows, most, tiles=on_gpu)
        # Rounded up: so the allocator of a GPU can reuse the block for micro-batches of other lengths.
        room = max(self._size, min(_up(self._size, _TILE_ROWS[0] if on_gpu else _CPU_ROWS), most))
        self._slices = [slice(start, min(start + self._size, rows)) for start in range(0, rows, self._size or 1)]
        self._rooms = _rooms(room, weight, dtypes)

    def __len__(self) -> int:
        return len(self._slices)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        for rows in self._slices:
            yield rows, _capped_logits(self._head, rows, self._softcap, self._rooms[0])

    def teacher_logits(self, rows: slice) -> Tensor | None:
        """Return the teacher's logits of a chunk, which overwrite the last ones; None without a teacher."""
        head = self._teacher.head
        return None if head is None else _capped_logits(head, rows, self._teacher.softcap, self._rooms[1])

    def gradients_of(self, logits_CV: Tensor) -> Tensor:
        """Return room for the gradient of a chunk's logits, in the operands' dtype: the logits where they can hold it.

        They cannot if they are capped, or float32 with operands of half precision, which the gradients are again.
        """
        return logits_CV if self._shares_room else self._rooms[-1][: len(logits_CV)]

    def before_cap_(self, grad_CV: Tensor, logits_CV: Tensor) -> Tensor:
        """Turn the gradient of a chunk's logits into that of the product; this spoils capped logits.

        Return it with the zeros that fill up its rows, where the workspace holds them.

        d softcap * tanh(z / softcap) / dz = 1 - (logit / softcap)^2.
        """
        if self._softcap is not None:
            for grad, part in zip(_parts(grad_CV), _parts(logits_CV), strict=True):
                grad.mul_(part.float().div_(self._softcap).square_().neg_().add_(1))
        filled_CV = _filled_up(self._rooms[0 if self._shares_room else -1], len(grad_CV))
        if len(filled_CV) == len(grad_CV):
            return grad_CV
        filled_CV[len(grad_CV) :] = 0
        return filled_CV


class HeadGradients:
    """Sum the gradients of hidden states, weight and bias over chunks.

    Args:
        head: the head of `LogitChunks`.
        wants: whether hidden states, weight and bias get a gradient; an operand that gets none costs nothing.
        num_chunks: how often `add` will be called.
    """

    def __init__(self, head: Head, wants: Wants, num_chunks: int) -> None:
        self._head = head
        hidden_RH, weight, bias = head
        # Contiguous even if the operands are not, as `empty_gradients` promises torch.compile.
        self._hidden_grad_RH = hidden_RH.new_empty(hidden_RH.shape) if wants.hidden else None
        self._weight_grad = None
        if wants.weight:
            dtype = weight.dtype if num_chunks <= _OWN_DTYPE_CHUNKS else torch.float32
            self._weight_grad = empty(weight.shape, dtype, weight.device)
            if num_chunks == 0:  # nothing is ever written to it
                self._weight_grad.zero_()
        self._bias_grad = None if bias is None or not wants.bias else torch.zeros_like(bias, dtype=torch.float32)

    def add(self, rows: slice, grad_CV: Tensor) -> None:
        """Take the gradient of a chunk's logits, in the dtype of the operands; rows of zeros may fill it up."""
        hidden_CH = self._head.hidden[rows]
        if self._hidden_grad_RH is not None:
            _hidden_gradient(grad_CV, self._head.weight, out=self._hidden_grad_RH[rows])
        if len(grad_CV) > len(hidden_CH):
            grad_CV = grad_CV[: len(hidden_CH)]
        if self._weight_grad is not None:
            _accumulate(self._weight_grad, grad_CV.t(), hidden_CH, first=rows.start == 0)
        if self._bias_grad is not None:
            self._bias_grad += grad_CV.sum(dim=0, dtype=torch.float32)

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of hidden states, weight and bias in the dtype of the operands; empty where not wanted.

        Free the logits first: a cast of the weight's gradient takes V H numbers of memory.
        """
        weight = self._head.weight
        hidden_grad, weight_grad, bias_grad = (
            weight.new_empty(0) if grad is None else grad.to(weight.dtype)
            for grad in (self._hidden_grad_RH, self._weight_grad, self._bias_grad)
        )
        return hidden_grad, weight_grad, bias_grad


def rows_of_mask(mask_N: Tensor | None) -> Tensor | None:
    """Increasing indices of the tokens of a mask, None for all of them; this synchronises with the GPU."""
    if mask_N is None:
        return None
    rows_R = mask_N.nonzero()[:, 0]
    return rows_R if len(rows_R) < len(mask_N) else None


def spread(values: Tensor, rows_R: Tensor | None, total: int, dim: int) -> Tensor:
    """Return the values of R rows at their indices among `total`, zeros elsewhere; `values` where the rows are all."""
    if rows_R is None:
        return values
    shape = [total if axis == dim else size for axis, size in enumerate(values.shape)]
    return values.new_zeros(shape).index_copy_(dim, rows_R, values)


def empty_gradients(head: Head, wants: Wants) -> tuple[Tensor, ...]:
    """Return empty tensors like `HeadGradients.results`, for the operators on fake tensors."""
    return tuple(
        head.weight.new_empty(operand.shape if operand is not None and wanted else 0)
        for operand, wanted in zip(head, wants, strict=True)
    )


def _rooms(rows: int, weight: Tensor, dtypes: list[torch.dtype]) -> list[Tensor]:
    """Return for each data type a matrix of logits, all in one room."""
    vocabulary = weight.shape[0]
    stride = vocabulary if weight.device.type == "cpu" else _up(vocabulary, _STRIDE)
    sizes = [rows * stride * dtype.itemsize for dtype in dtypes]
    parts = zip(torch.split(empty((sum(sizes),), torch.uint8, weight.device), sizes), dtypes, strict=True)
    return [part.view(dtype).view(rows, stride)[:, :vocabulary] for part, dtype in parts]


def _chunk_size(rows: int, most: int, *, tiles: bool) -> int:
    """Return the number of rows in a chunk: all, or an equal share, rounded up to whole tiles if `most` allows it.

    With `tiles`, one more chunk is taken if the chunks would otherwise not be whole tiles.
    """
    if rows <= most:
        return rows
    chunks = -(-rows // most)
    for count in (chunks, chunks + 1) if tiles else (chunks,):
        equal = -(-rows // count)
        for tile in _TILE_ROWS:
            if (size := _up(equal, tile)) <= most:
                return size
    return -(-rows // chunks)


def _most_rows(rows: int, most: int, row_bytes: int, weight_bytes: int, *, tiles: bool) -> int:
    """Return the limit of the rows of a chunk, raised where fewer chunks take less memory than a float32 sum.

    A sum in half precision holds `weight_bytes` beside the logits; one in float32 twice as many, and three times as
    many while it is cast, when the logits are gone; on the CPU their room is kept.
    """
    size = _chunk_size(rows, most, tiles=tiles)
    if -(-rows // max(size, 1)) <= _OWN_DTYPE_CHUNKS:
        return most
    larger = -(-rows // _OWN_DTYPE_CHUNKS)
    if tiles:
        larger = min(rows, _up(larger, _TILE_ROWS[1]))
    in_float32 = (
        max(most * row_bytes + 2 * weight_bytes, 3 * weight_bytes) if tiles else most * row_bytes + 3 * weight_bytes
    )
    return larger if larger * row_bytes + weight_bytes <= in_float32 else most


def _capped_logits(head: Head, rows: slice, softcap: float | None, workspace: Tensor) -> Tensor:
    """Write the logits of a chunk to the first rows of a workspace, and return these."""
    hidden_CH = head.hidden[rows]
    _logits(hidden_CH, head.weight, head.bias, out=_filled_up(workspace, len(hidden_CH)))
    logits_CV = workspace[: len(hidden_CH)]
    if softcap is not None:
        for part in _parts(logits_CV):
            part.copy_(part.float().div_(softcap).tanh_().mul_(softcap))
    return logits_CV


def _logits(hidden_CH: Tensor, weight: Tensor, bias: Tensor | None, *, out: Tensor) -> None:
    """out = hidden @ weight.T + bias, rounded to the dtype of `out` once, which may have further rows."""
    if out.device.type == "cpu" and 0 < len(out) < _CPU_ROWS:  # in a workspace that holds no more
        whole_CV = out.new_empty(_CPU_ROWS, out.shape[1])
        _logits(hidden_CH, weight, bias, out=whole_CV)
        out.copy_(whole_CV[: len(out)])
        return
    if len(out) > len(hidden_CH):
        hidden_CH = torch.nn.functional.pad(hidden_CH, (0, 0, 0, len(out) - len(hidden_CH)))
    if _widens(weight) or (out.dtype != weight.dtype and out.device.type == "cpu"):
        wide_CH = hidden_CH.float()
        room = None if out.dtype == torch.float32 else wide_CH.new_empty(len(wide_CH) * CPU_PART_ROWS)
        for part, wide_weight in _wide_parts(weight):
            product = out[:, part] if room is None else room[: len(wide_CH) * len(wide_weight)].view(len(wide_CH), -1)
            torch.mm(wide_CH, wide_weight.t(), out=product)  # without `out`, torch.autocast would round the operands
            if bias is not None:
                product += bias[part]
            if room is not None:
                out[:, part] = product
        return
    if out.dtype != weight.dtype:
        torch.mm(hidden_CH, weight.t(), out.dtype, out=out)
        if bias is not None:
            out += bias
    elif bias is None:
        torch.mm(hidden_CH, weight.t(), out=out)
    else:
        torch.addmm(bias, hidden_CH, weight.t(), out=out)


def _filled_up(room_XV: Tensor, rows: int) -> Tensor:
    """Return so many rows of a room, and on the CPU those that fill them up, if the room has them."""
    filled = _up(rows, _CPU_ROWS)
    return room_XV[: filled if room_XV.device.type == "cpu" and filled <= len(room_XV) else rows]


def _up(rows: int, unit: int) -> int:
    return -(-rows // unit) * unit


def _parts(values_CV: Tensor) -> tuple[Tensor, ...]:
    """Return ranges of rows that are small enough for float32 copies."""
    return torch.split(values_CV, max(1, _CAPPED_PART // values_CV.shape[1]))


def _hidden_gradient(grad_CV: Tensor, weight: Tensor, *, out: Tensor) -> None:
    """out = grad @ weight, of which the last rows may be left out."""
    if len(grad_CV) > len(out):
        filled_CH = out.new_empty(len(grad_CV), out.shape[1])
        _hidden_gradient(grad_CV, weight, out=filled_CH)
        out.copy_(filled_CH[: len(out)])
        return
    if not _widens(weight):
        torch.mm(grad_CV, weight, out=out)
        return
    total = torch.zeros_like(out, dtype=torch.float32)
    for part, wide_weight in _wide_parts(weight):
        total.addmm_(grad_CV[:, part].float(), wide_weight)
    out.copy_(total)


def _widens(operand: Tensor) -> bool:
    """Return whether products run in float32, because PyTorch's products of this dtype are slow on this CPU."""
    return operand.device.type == "cpu" and operand.dtype == torch.bfloat16 and not bfloat16_products("cpu").is_fast


def _wide_parts(weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield ranges of rows of the weight, with the rows in float32; every part overwrites the last one."""
    room = weight.new_empty(CPU_PART_ROWS, weight.shape[1], dtype=torch.float32)
    for start in range(0, len(weight), CPU_PART_ROWS):
        part = slice(start, start + CPU_PART_ROWS)
        rows = weight[part]
        yield part, room[: len(rows)].copy_(rows)


def _accumulate(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """total += a @ b, where `total` has their dtype or is float32; `first` treats it as zero, whatever it holds."""
    wide = _widens(a)
    if a.dtype == total.dtype and not wide:
        for part, rows in _in_parts(total, a, max(len(a), 1)):
            _ = torch.mm(rows, b, out=part) if first else torch.addmm(part, rows, b, out=part)
    elif a.device.type == "cpu":
        # PyTorch rounds the product to half precision. Parts that fit in the caches take half the time of a whole one.
        b = b.float() if wide else b
        room = b.new_empty(CPU_PART_ROWS, b.shape[1])
        for part, rows in _in_parts(total, a, CPU_PART_ROWS):
            product = torch.mm(rows.float() if wide else rows, b, out=room[: len(part)])
            _ = part.copy_(product) if first else part.add_(product)
    elif first:
        torch.mm(a, b, torch.float32, out=total)
    else:
        torch.addmm(total, a, b, torch.float32, out=total)


def _in_parts(total: Tensor, a: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ranges of so many rows of both; `a` is the transposed gradient of logits.

    A CPU that multiplies tiles gets fewer rows, copied so that they lie in memory: from those a product takes a third
    to six tenths of the time. Elsewhere it takes as long from either, and the copies take 2 % of a call.
    """
    is_tiled = a.device.type == "cpu" and a.dtype == torch.bfloat16 and bfloat16_products("cpu").in_tiles
    room = None
    if is_tiled and native_obstacle() is None:
        size = min(size, TILED_PART_ROWS)
        room = a.new_empty(size, a.shape[1])
    for start in range(0, len(a), size):
        part, rows = total[start : start + size], a[start : start + size]
        if room is not None:
            given, rows = (a.t(), *a.t().shape, start, len(rows)), room[: len(rows)]
            call_native("transpose_columns", *given, rows, torch.get_num_threads())
        yield part, rows
