"""Keys: 32-bit numbers that stand for values, so that a constraint is an interval of them, and the hashes of
lists.

A number's key is even if it is *round*, that is a float32 whose last bit is 0, and odd if it lies between two
round ones. Keys are ordered as the numbers are; only two numbers in the same gap have one key. So an interval
of keys decides every comparison with a round operand, and every other but for values in the operand's own
gap.
"""

from __future__ import annotations

import numpy as np

from evflow.matching.native import compiled, float_of, narrow, narrow_bits, product, total, u8

INFINITE = 0x7F800000
NOT_A_NUMBER = 0x7F800002
_LOW = 0xFFFFFFFF
_C1 = 0x9E3779B97F4A7C15 - (1 << 64)
_C2 = 0xBF58476D1CE4E5B9 - (1 << 64)
_C3 = 0x94D049BB133111EB - (1 << 64)
_BUCKET = 15
"""The kind of the hash of a bucket; those of patterns are their operators."""


@compiled
def mix(value: int) -> int:
    """64 bits that depend on all of ``value`` (the finaliser of splitmix64)."""
    value = total(value, _C1)
    value = product(value ^ ((value >> 30) & 0x3FFFFFFFF), _C2)
    value = product(value ^ ((value >> 27) & 0x1FFFFFFFFF), _C3)
    return value ^ ((value >> 31) & 0x1FFFFFFFF)


@compiled
def join(key: int, more: int) -> int:
    """The key of a list that is found within another."""
    value = product(key ^ more, _C2)
    value ^= (value >> 32) & _LOW
    return value if value else 1


@compiled
def number_key(number: float) -> int:
    """The key of a number, as a signed integer."""
    if number != number:
        return NOT_A_NUMBER
    bits = narrow_bits(number)
    order = bits if bits >= 0 else -(bits & 0x7FFFFFFF)
    rounded = narrow(number)
    if rounded > number:
        order -= 1
    key = order & -2
    return key if rounded == number and key == order else key | 1


@compiled
def value_hash(element: int, kind: int, code: int) -> int:
    """What a sharp constraint is counted by, and adds to the key of its list; 0 stands for none."""
    return 1 | mix((element << 4 | kind) ^ product(code, _C3))


@compiled
def bucket_hash(element: int, first: int, level: int, shifted: int) -> int:
    """The hash of a bucket of keys, by its first or any other key: there are two rows of buckets of a size.

    Args:
        element: whose keys.
        first: the key, from 0 on in their order.
        level: the bucket has two to this power of them.
        shifted: 1 if it is of the row whose buckets begin where those of the other have their middle.
    """
    bucket = (first + (shifted << (level - 1))) >> level
    return value_hash(element, _BUCKET, bucket << 6 | level << 1 | shifted)


@compiled
def power(exponent: int) -> float:
    """2 to an exponent of -1022 to 1023."""
    return float_of((exponent + 1023) << 52)


@compiled
def cell_number(place: float, scale: float) -> int:
    """The number of the cell along one axis; it never falls where ``place`` grows."""
    return int(min(max(np.floor(place * scale), -1073741824.0), 1073741824.0))


@compiled
def cell_key(group: int, exponent: int, i: int, j: int, k: int) -> int:
    """The key of a cell of a group; ``exponent`` tells the size of its cells."""
    value = mix(
        total(total(total(group, exponent), product(i, _C1)), total(product(j, _C2), product(k, _C3)))
    )
    return value if value else 1


@compiled
def hash_bytes(address: int, length: int) -> int:
    """A hash of bytes."""
    value = length
    for i in range(length):
        value = product(value ^ u8(address + i), _C2)
        value ^= (value >> 29) & 0x7FFFFFFFF
    return value
