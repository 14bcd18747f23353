"""Unaligned little-endian loads and stores at an address: what Numba lacks for Arrow buffers.

Addresses are int64. A load from an address that is not ours is a crash and not an exception, so
these functions are for the kernels beside this file alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import njit, types
from numba.extending import intrinsic


def _load(kind: Any, result: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            value = builder.load(pointer)
            value.align = 1
            return value

        return result(types.int64), codegen

    return load


def _store(kind: Any, value_type: Any) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            builder.store(args[1], pointer).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, value_type), codegen

    return store


def _prefetch() -> Any:
    @intrinsic
    def prefetch(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [line, number, number, number])
            function = builder.module.declare_intrinsic("llvm.prefetch", [line], kind)
            hints = [ir.Constant(number, n) for n in (0, 3, 1)]  # to read, keep it, data
            builder.call(function, [builder.inttoptr(args[0], line), *hints])
            return context.get_dummy_value()

        return types.void(types.int64), codegen

    return prefetch


prefetch = _prefetch()
"""Ask for the cache line at an address, which need not exist; wait for nothing."""
load_u8 = _load(ir.IntType(8), types.uint8)
load_u32 = _load(ir.IntType(32), types.uint32)
load_i32 = _load(ir.IntType(32), types.int32)
load_u64 = _load(ir.IntType(64), types.uint64)
load_i64 = _load(ir.IntType(64), types.int64)
load_f64 = _load(ir.DoubleType(), types.float64)
store_u8 = _store(ir.IntType(8), types.uint8)
store_i32 = _store(ir.IntType(32), types.int32)
store_u64 = _store(ir.IntType(64), types.uint64)
store_i64 = _store(ir.IntType(64), types.int64)
store_f64 = _store(ir.DoubleType(), types.float64)


@njit(cache=True, nogil=True, inline="always")
def offset_at(offsets: int, wide: bool, row: int) -> Any:
    """Read one Arrow offset of 32 or 64 bits."""
    if wide:
        return load_i64(offsets + row * 8)
    return np.int64(load_i32(offsets + row * 4))


@njit(cache=True, nogil=True, inline="always")
def bit_at(bitmap: int, bit: int) -> Any:
    """Read one bit of an Arrow validity bitmap."""
    return (load_u8(bitmap + (bit >> 3)) >> np.uint8(bit & 7)) & np.uint8(1) != 0


@njit(cache=True, nogil=True)
def same_bytes(a: int, b: int, length: int) -> Any:
    """Compare two runs of bytes in words; the last word overlaps the one before it."""
    if length >= 8:
        last = length - 8
        for i in range(0, last, 8):
            if load_u64(a + i) != load_u64(b + i):
                return False
        return load_u64(a + last) == load_u64(b + last)
    if length >= 4:
        last = length - 4
        return load_u32(a) == load_u32(b) and load_u32(a + last) == load_u32(b + last)
    same = True
    for i in range(length):
        same &= load_u8(a + i) == load_u8(b + i)
    return same


@njit(cache=True, nogil=True)
def copy_bytes(target: int, source: int, length: int) -> None:
    """Copy a run of bytes; the two must not overlap."""
    whole = length & -8
    for i in range(0, whole, 8):
        store_u64(target + i, load_u64(source + i))
    for i in range(whole, length):
        store_u8(target + i, load_u8(source + i))
