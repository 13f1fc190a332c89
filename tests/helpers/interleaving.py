"""Launches under Triton's interpreter whose programs run in random turns, on memory as weak as a GPU's.

The interpreter runs the programs of a launch one after another. Here each runs in a thread of its own, and before every
access of every lane a seeded generator chooses the program that goes on; one runs at a time.

- A store is seen by its own program at once. The others see it at some later time: at the latest when the launch ends.
- A load shows memory as it is or, by chance, as it was when the launch began.
- Atomic operations act on memory itself, each lane by itself.
- An access outside the tensors of the launch raises an error.

A program does not load earlier or later than its source says; otherwise this is weaker than the memory of a GPU.
"""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, TensorHandle

Array = np.ndarray[Any, Any]
_RELAXED, _OP = ir.MEM_SEMANTIC.RELAXED, ir.ATOMIC_OP
_OPERATIONS: dict[Any, Callable[[Any, Any], Any]] = {_OP.ADD: np.add, _OP.OR: np.bitwise_or}


class Memory:
    """The bytes of some tensors, by address."""

    def __init__(self, parts: dict[int, Array]) -> None:
        self.parts = parts

    @classmethod
    def of(cls, tensors: list[Tensor]) -> "Memory":
        return cls({tensor.data_ptr(): tensor.numpy().reshape(-1).view(np.uint8) for tensor in tensors})

    def copy(self) -> "Memory":
        return Memory({begin: part.copy() for begin, part in self.parts.items()})

    def at(self, address: int, dtype: Any) -> Array:
        """Return the number at an address, as an array of one that can be written."""
        for begin, part in self.parts.items():
            if begin <= address <= begin + len(part) - dtype.itemsize:
                return part[address - begin : address - begin + dtype.itemsize].view(dtype)
        raise IndexError("access outside the tensors of the launch")


class Program:
    """A program of a launch: its turn, and its view of the memory."""

    def __init__(self, index: int, memory: Memory, old: Memory) -> None:
        self.index, self.memory, self.old = index, memory, old
        self.turn = threading.Semaphore(0)
        self.stores: dict[int, Any] = {}  # that only this program sees, by address

    def publish(self, addresses: list[int]) -> None:
        for address in addresses:
            if address in self.stores:
                value = self.stores.pop(address)
                self.memory.at(address, value.dtype)[0] = value


class Interleaving:
    """The programs of one launch after another; `in_turns` False runs each to its end, on memory without delays."""

    def __init__(self, seed: int, *, in_turns: bool = True) -> None:
        self.random, self.in_turns = random.Random(seed), in_turns
        self.programs: list[Program] = []
        self.live: list[Program] = []  # those that have not ended
        self.ended = threading.Semaphore(0)
        self.errors: list[Exception] = []

    def run(self, body: Callable[[], object], number: int, tensors: list[Tensor]) -> None:
        memory = Memory.of(tensors)
        old = memory.copy()
        self.programs = [Program(index, memory, old) for index in range(number)]
        self.live = list(self.programs)
        self.errors.clear()
        threads = [threading.Thread(target=self._run_one, args=(body, program)) for program in self.live]
        for thread in threads:
            thread.start()
        self._hand_over()
        self.ended.acquire()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        for program in self.programs:
            program.publish(list(program.stores))

    def _run_one(self, body: Callable[[], object], program: Program) -> None:
        program.turn.acquire()
        try:
            body()
        except Exception as error:  # noqa: BLE001 - the launch raises it
            self.errors.append(error)
        self.live.remove(program)
        if self.live:
            self._hand_over()
        else:
            self.ended.release()

    def _hand_over(self) -> None:
        self.program = self.random.choice(self.live) if self.in_turns else self.live[0]
        interpreter.interpreter_builder.set_grid_idx(self.program.index, 0, 0)
        self.program.turn.release()

    def step(self) -> Program:
        """Let others run before an access of the running program, which is returned."""
        me = self.program
        if self.in_turns:
            for program in self.programs:
                if program.stores and self.random.random() < 0.02:
                    program.publish([self.random.choice(list(program.stores))])
            self._hand_over()
            me.turn.acquire()
        return me

    def lanes(self, chosen: Array) -> Iterator[tuple[int, Program]]:
        """Yield the chosen lanes in any order, each in its turn, with the running program."""
        order = np.flatnonzero(chosen).tolist()
        if self.in_turns:
            self.random.shuffle(order)
        for lane in order:
            yield lane, self.step()

    # --- the operations of the interpreter's builder ---

    def load(self, pointers: Any, mask: Any, other: Any, *_: Any) -> TensorHandle:
        element = pointers.get_element_ty()
        dtype = interpreter._get_np_dtype(element)
        addresses, chosen = pointers.data.reshape(-1), np.broadcast_to(mask.data, pointers.data.shape).reshape(-1)
        found = np.zeros(len(addresses), dtype) if other is None else other.data.astype(dtype).reshape(-1).copy()
        for lane, program in self.lanes(chosen):
            address = int(addresses[lane])
            if address in program.stores:
                found[lane] = program.stores[address]
            else:
                is_old = self.in_turns and self.random.random() < 0.5
                found[lane] = (program.old if is_old else program.memory).at(address, dtype)[0]
        return TensorHandle(found.reshape(pointers.data.shape), element)

    def store(self, pointers: Any, values: Any, mask: Any, *_: Any) -> None:
        addresses, chosen = pointers.data.reshape(-1), np.broadcast_to(mask.data, pointers.data.shape).reshape(-1)
        numbers = np.broadcast_to(values.data, pointers.data.shape).reshape(-1)
        for lane, program in self.lanes(chosen):
            address = int(addresses[lane])
            program.memory.at(address, numbers.dtype)  # it must be there
            program.stores[address] = numbers[lane]
            if not self.in_turns:
                program.publish([address])

    def swap(self, pointers: Any, expected: Any, values: Any, sem: Any, scope: Any) -> TensorHandle:
        compared, numbers = expected.data.reshape(-1), values.data.reshape(-1)

        def change(lane: int, cell: Array) -> None:
            if cell[0] == compared[lane]:
                cell[0] = numbers[lane]

        return self._atomic(pointers, values, np.ones(len(numbers), bool), sem, change)

    def combine(self, kind: Any, pointers: Any, values: Any, mask: Any, sem: Any, scope: Any) -> TensorHandle:
        operation, numbers = _OPERATIONS[kind], values.data.reshape(-1)

        def change(lane: int, cell: Array) -> None:
            cell[0] = operation(cell[0], numbers[lane])

        return self._atomic(pointers, values, mask.data.reshape(-1), sem, change)

    def _atomic(
        self, pointers: Any, values: Any, chosen: Array, sem: Any, change: Callable[[int, Array], None]
    ) -> TensorHandle:
        assert sem == _RELAXED, "no program of a launch waits for another"
        addresses, found = pointers.data.reshape(-1), np.zeros_like(values.data.reshape(-1))
        for lane, program in self.lanes(chosen):
            address = int(addresses[lane])
            program.publish([address])
            cell = program.memory.at(address, found.dtype)
            found[lane] = cell[0]
            change(lane, cell)
        return TensorHandle(found.reshape(pointers.data.shape), values.dtype.scalar)


def interleave(monkeypatch: pytest.MonkeyPatch, interleaving: Interleaving) -> None:
    """Run all launches, with keyword arguments and grids of one dimension, through `interleaving`."""
    patch_language = interpreter._patch_lang
    scopes: dict[int, Any] = {}

    def patch_once(function: Any) -> None:
        """Patch Triton's language in a module, once a launch rather than at every call."""
        if id(function.__globals__) not in scopes:
            scopes[id(function.__globals__)] = patch_language(function)

    class Executor(interpreter.GridExecutor):
        def __call__(self, **kwargs: Any) -> None:
            names = [name for name in self.arg_names if name in kwargs]
            tensors = [kwargs[name] for name in names if isinstance(kwargs[name], Tensor)]
            patch_once(self.fn)
            try:
                interpreter.interpreter_builder.set_grid_dim(self.grid[0], 1, 1)

                def body() -> None:
                    convert = interpreter._implicit_cvt
                    self.fn(**{n: kwargs[n] if n in self.constexprs else convert(kwargs[n]) for n in names})

                interleaving.run(body, self.grid[0], tensors)
            finally:
                while scopes:
                    scopes.popitem()[1].restore()

    builder = interpreter.InterpreterBuilder
    monkeypatch.setattr(interpreter, "GridExecutor", Executor)
    monkeypatch.setattr(interpreter, "_patch_lang", patch_once)
    for name, operation in {
        "create_masked_load": interleaving.load,
        "create_masked_store": interleaving.store,
        "create_atomic_cas": interleaving.swap,
        "create_atomic_rmw": interleaving.combine,
    }.items():
        monkeypatch.setattr(builder, name, lambda self, *arguments, do=operation: do(*arguments))


def mutate(monkeypatch: pytest.MonkeyPatch, function: Any, old: str, new: str) -> None:
    """Replace a text that stands once in the source of a kernel, or of a function that kernels call."""
    assert isinstance(function, InterpretedFunction)
    rewriter = function.rewriter
    prepare = rewriter._prepare_source

    def changed(lines: list[str]) -> str:
        source: str = prepare(lines)
        assert source.count(old) == 1, f"{old!r} must stand once in the source"
        return source.replace(old, new)

    with monkeypatch.context() as context:
        context.setattr(rewriter, "_prepare_source", changed)
        rewritten = rewriter.rewrite_ast()
    monkeypatch.setitem(InterpretedFunction.rewritten_fn, function.fn, rewritten)
