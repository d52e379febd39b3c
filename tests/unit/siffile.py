"""Pieces of SIF files, as the format's specification lays them out."""

from __future__ import annotations

import struct


def sif_header(data_offset: int, data_size: int, magic: bytes = b"SIF_MAGIC\x00", rows: int = 1) -> bytes:
    """A header as the SIF format's specification lays it out."""
    launch = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0")
    ends = struct.pack("<8q", 1, 1, 0, rows, 128, 585 * rows, data_offset, data_size)
    return launch + magic + b"01\x00" + b"02\x00" + b"\x07" * 16 + ends


def descriptor(number: int, offset: int, size: int, extra: bytes = b"", used: bool = True) -> bytes:
    """A row of the table as the SIF format's specification lays it out."""
    row = struct.pack("<i?III7q", number, used, 1, 0xF0000001, 0, offset, size, size + 5, 9, 9, 0, 0)
    return row + b"name".ljust(128, b"\0") + extra.ljust(384, b"\0")
