# SPDX-License-Identifier: GPL-2.0
"""Programs that only guests run: a layer over the host's root.

    guest's root = overlay( this layer : the host's root )
"""

from . import cache
from .unpacked import Unpacked

_tools = Unpacked("guest-tools", cache.LAB / "guest-tools.list")

missing = _tools.missing
layer = _tools.directory
