"""Twins of the hashing and sketching kernels in plain Python."""

from __future__ import annotations

WORD = (1 << 64) - 1


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def mix(word: int) -> int:
    h = word & WORD
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB & WORD
    return h ^ (h >> 31)


def hash_bytes(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & WORD
    return signed(mix(h))


def frame(values: list[bytes | None]) -> bytes:
    return b"".join(b"\0" if v is None else b"\1" + len(v).to_bytes(4, "little") + v for v in values)


def shard(word: int, shards: int) -> int:
    return (mix(word) >> 32) % shards


def registers(words: list[int]) -> list[int]:
    """The sketch of keys with these words: per class of the low 9 bits, the most zeros in the next 23, plus 1."""
    sketch = [0] * 512
    for word in words:
        bits = f"{mix(word) >> 9 & (1 << 23) - 1:023b}"
        rank = 1 + len(bits) - len(bits.rstrip("0"))
        sketch[mix(word) & 511] = max(sketch[mix(word) & 511], rank)
    return sketch
