"""Freed memory kept in the process, so that large batches don't get every page of their temporaries from the system anew."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of the GNU C library
TRIM, MMAP = 2**30, 2**25  # bytes; the latter is the largest that older versions take


def keep_freed_memory() -> bool:
    """Has malloc keep up to 1 GiB that was freed, and take blocks up to 32 MiB from it; whether this C library can do that.

    A step of 1,024 agents makes temporaries of megabytes. By default the GNU C library gives them back to the system after each
    step, and the next one takes some thousand page faults: a fifth of the time of a plain policy, half of one with attention.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, TRIM)) and bool(mallopt(M_MMAP_THRESHOLD, MMAP))
