"""Decompresses what anyone may have written, within bounds: 1 kB may become gigabytes."""

from importlib import import_module
from typing import Any

# What decompresses no more than is asked for, by kombu's names of the compression.
_GRADUALLY = {
    **dict.fromkeys(("application/x-gzip", "gzip", "zlib"), ("zlib", "decompressobj")),
    **dict.fromkeys(("application/x-bz2", "bzip2", "bzip"), ("bz2", "BZ2Decompressor")),
    **dict.fromkeys(("application/x-lzma", "lzma", "xz"), ("lzma", "LZMADecompressor")),
}


def decompressed(raw: bytes, compression: Any, most_bytes: int) -> bytes | None:
    """
    *raw* without its compression. None if that would be more than *most_bytes*, unless these are 0.

    Args:
        compression: As kombu names it. Only gzip, bzip2 and xz are bounded.
    """
    module, name = _GRADUALLY.get(compression, ("", ""))
    if most_bytes and module:
        bounded = getattr(import_module(module), name)()
        found: bytes = bounded.decompress(raw, most_bytes + 1)
        if len(found) > most_bytes:
            return None
        if bounded.eof:
            return found
    # Another method, or a body that was cut off, which raises that method's own error.
    compressing: Any = import_module("kombu.compression")
    found = compressing.decompress(raw, compression)
    return found
