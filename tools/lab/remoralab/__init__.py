# SPDX-License-Identifier: GPL-2.0
"""The lab: kernel modules tested in virtual machines, without root and without risk.

Start reading at lab.py; a test needs Lab and tap.
"""

from .channel import CommandFailed, CommandTimeout, MachineDied  # noqa: F401
from .lab import Lab  # noqa: F401
from .say import LabError  # noqa: F401
