"""Numba loops over flat arrays. Arrays in, arrays out; kernels import nothing of the package but kernels.

Every kernel is compiled for exactly one signature (C-contiguous, writable, 64-bit indexes outside and
32-bit links inside) and cached on disk; `warm_up` compiles or loads all of them before the first batch.
"""
