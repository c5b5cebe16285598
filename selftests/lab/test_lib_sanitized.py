#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The library's suite by /dev/rmemN, built with sanitizers.

Not in a User Mode Linux, whose programs have 39 bits of addresses: AddressSanitizer's shadow takes more. Elsewhere
the layout of a program is random to a degree that ThreadSanitizer can't cope with, hence setarch.
"""

import test_rmem_programs as programs
from remoralab import tap

# Of layers above operations, which reach no device: the native suites show the same.
ABOVE = "*Litmus*:*Heap*:*Mapped*"
SUITE_S = 3000


def through_device(lab, program):
    # After a report the program's exit code is not 0.
    programs.through_device(lab, f"*/Given:-{ABOVE}", environment="setarch -R env", program=program, bound_s=SUITE_S)


@tap.bound(SUITE_S + 300)
def test_addresses_and_undefined_behaviour(lab):
    through_device(lab, "lib")


@tap.bound(SUITE_S + 300)
def test_races(lab):
    through_device(lab, "lib-tsan")


TESTS = [test_addresses_and_undefined_behaviour, test_races]

if __name__ == "__main__":
    tap.main("roomy", TESTS)
