"""SIF files and pieces of them, as the format's specification lays them out."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

ROOT = struct.pack("<ii3s", 1, 2, b"02\0")
OVERLAY = struct.pack("<ii3s", 1, 4, b"02\0")


def sif_header(data_offset: int, data_size: int, magic: bytes = b"SIF_MAGIC\x00", rows: int = 1) -> bytes:
    """A header as the SIF format's specification lays it out."""
    launch = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0")
    ends = struct.pack("<8q", 1, 1, 0, rows, 128, 585 * rows, data_offset, data_size)
    return launch + magic + b"01\x00" + b"02\x00" + b"\x07" * 16 + ends


def descriptor(number: int, offset: int, size: int, extra: bytes = b"", used: bool = True) -> bytes:
    """A row of the table as the SIF format's specification lays it out."""
    row = struct.pack("<i?III7q", number, used, 1, 0xF0000001, 0, offset, size, size + 5, 9, 9, 0, 0)
    return row + b"name".ljust(128, b"\0") + extra.ljust(384, b"\0")


def write_image(path: Path, content: bytes, *more: bytes, labels: object = None, created: int = 0) -> str:
    """A SIF file with `content` as its root file system, labels if any are given, and `more` rows in its table."""
    text = b"" if labels is None else json.dumps({"data": {"attributes": {"labels": labels}}}).encode()
    table = descriptor(0x4004, 8192, len(content), ROOT) + b"".join(more)
    table += descriptor(0x4006, 4096, len(text)) if text else b""
    numbers = struct.pack("<8q", created, 0, 0, len(table) // 585, 128, len(table), 8192, len(content))
    header = bytes(32) + b"SIF_MAGIC\0" + bytes(22) + numbers
    path.write_bytes((header + table).ljust(4096, b"\0") + text.ljust(4096, b"\0") + content)
    return str(path)


def write_signed(path: Path, content: bytes, labels: object, signed: bytes | None = None) -> None:
    """Such an image with a signature over `signed`, which is the content unless given."""
    text = f"\n\n{sha256(content if signed is None else signed)}".encode()
    write_image(path, content, descriptor(0x4005, 9000, len(text)), labels=labels)
    path.write_bytes(path.read_bytes().ljust(9000, b"\0") + text)


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
