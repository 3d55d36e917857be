"""Rewrite pickles of protocols 3 to 5 in protocol 2, the only one that PyTorch's restricted reader takes.

Nothing is executed here: opcodes are replaced by opcodes. The restricted reader decides what may be loaded.
"""

import io
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

_FIRST = b"\x80\x02"
"""First bytes of a pickle of protocol 2."""
_LEGACY_PICKLES = 5
"""Pickles in a file without a zip archive: magic number, version, system, content, and names of tensors."""
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")
_BYTES = ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8")
_SAVES = ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT")
_FETCHES = ("BINGET", "LONG_BINGET", "GET")
_REPLACEMENTS = {"PROTO": _FIRST, "FRAME": b"", "EMPTY_SET": pickle.EMPTY_LIST, "ADDITEMS": pickle.APPENDS}
"""Opcodes of later protocols; a set is read as a list."""


def open_as_protocol_2(path: Path) -> IO[bytes]:
    """Open a file of `torch.save`, or a copy in memory if its pickles have a later protocol than 2.

    Raises:
        ValueError, IndexError, KeyError: A broken pickle.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            pickled = next((name for name in archive.namelist() if name.endswith("data.pkl")), None)
            if pickled is None or (content := archive.read(pickled)) <= _FIRST + b"\xff":
                return path.open("rb")
            copy = io.BytesIO()
            with zipfile.ZipFile(copy, "w") as rewritten:
                for name in archive.namelist():
                    rewritten.writestr(name, _rewrite(content)[0] if name == pickled else archive.read(name))
        copy.seek(0)
        return copy
    with path.open("rb") as file:
        if not _FIRST < file.read(2) <= b"\x80\x05":
            return path.open("rb")
    content, parts, end = path.read_bytes(), list[bytes](), 0
    for _ in range(_LEGACY_PICKLES):
        part, end = _rewrite(content, end)
        parts.append(part)
    return io.BytesIO(b"".join(parts) + content[end:])


def _rewrite(content: bytes, start: int = 0) -> tuple[bytes, int]:
    """Rewrite the pickle at `start`, and return its end. Texts are written out wherever they are used."""
    file, output = io.BytesIO(content), list[bytes | str]()  # a text on the stack is a str
    saved: dict[int, str | None] = {}  # by number: a text, or None for other objects
    file.seek(start)
    opcodes: Iterable[tuple[pickletools.OpcodeInfo, Any, int | None]] = pickletools.genops(file)
    for opcode, argument, position in opcodes:
        name = opcode.name
        if name in _TEXTS:
            output.append(argument)
        elif name in _BYTES:
            call = _text(argument.decode("latin-1")) + _text("latin1") + pickle.TUPLE2 + pickle.REDUCE
            output.append(pickle.GLOBAL + b"_codecs\nencode\n" + call)
        elif name in _SAVES:
            number, top = len(saved) if argument is None else int(argument), output[-1]
            saved[number] = top if isinstance(top, str) else None
            if saved[number] is None:
                output.append(pickle.LONG_BINPUT + struct.pack("<I", number))
        elif name in _FETCHES:
            fetch = pickle.LONG_BINGET + struct.pack("<I", int(argument))
            text = saved[int(argument)]
            output.append(fetch if text is None else text)
        elif name == "STACK_GLOBAL":
            attribute, module = output.pop(), output.pop()
            output.append(pickle.GLOBAL + f"{module!s}\n{attribute!s}\n".encode())
        else:
            output.append(_REPLACEMENTS.get(name, content[position : file.tell()]))
    return b"".join(_text(part) if isinstance(part, str) else part for part in output), file.tell()


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded
