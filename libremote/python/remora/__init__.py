# SPDX-License-Identifier: MIT
"""Memory of other machines for Python, by libremote.

    import remora

    with remora.open("embedded:size=64M") as handle, handle.alloc(1 << 20) as region:
        region.write(b"hello")
        region.read(5)

Targets are those of remote_open(3). Errors are OSErrors, see Error. remora.queue has operations that run together, and
Handle.async_queue() has them for asyncio.
"""

from . import queue
from ._library import Denied, Error, Exists, Forked, Lost, NotFound, Refused, Timeout, Uncertain
from .aio import AsyncQueue
from .handle import Change, Compare, Counted, Counters, Handle, Integrity, Listed, Lock, Node, Region, Signal, Swapped
from .queue import Op, Queue

open = Handle

__all__ = ["AsyncQueue", "Change", "Compare", "Counted", "Counters", "Denied", "Error", "Exists", "Forked", "Handle", "Integrity",
           "Listed", "Lock", "Lost", "Node", "NotFound", "Op", "Queue", "Refused", "Region", "Signal", "Swapped", "Timeout",
           "Uncertain", "open", "queue"]
