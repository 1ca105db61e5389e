"""Coverage-guided fuzzing of what reads a state: `python -m soak.state_decoder [libFuzzer's options]`.

Needs the group `fuzz` (atheris), which has wheels for some Pythons only. The bytes are a header and a segment, torn as
the fuzzer likes; whatever they are, they are read or refused by name.
"""

from __future__ import annotations

import sys
import zlib

import atheris

with atheris.instrument_imports(include=["watersmeet.state.log", "watersmeet.state.segments"]):
    from watersmeet.errors import StateError
    from watersmeet.state import log, segments


def decode(data: bytes) -> None:
    """Read the bytes as a header, as a body under a checksum that fits, and as a segment under its own."""
    sealed = f"watersmeet-state {log.FORMAT} {zlib.crc32(data):08x}\n".encode() + data
    for header in (data, sealed):
        try:
            log.Header.unpack(header)
        except StateError:
            continue
    try:
        segments.unpack(1, data, zlib.crc32(data))
    except StateError:
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, decode)
    atheris.Fuzz()
