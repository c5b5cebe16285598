# SPDX-License-Identifier: GPL-2.0
"""The demonstration of programs beside the memory:

    compute   searches a radix tree        -- UDP --        memory   Debian's own kernel: rmem_node, rmem_bpf
              by a read a level, or by one query                     tree.bpf.o, verified and compiled by it

`make demo-offload` boots pair.topo and calls main(). Then a program that never ends, which its budget ends, and one that reaches
beyond its slice, which the kernel refuses.
"""

import re
import sys

from remoralab import cache, rmem, say
from remoralab.rmem import Rack
from remoralab.say import LabError

sys.path.insert(0, str(cache.REPO / "selftests" / "lab"))

import rmemlab  # noqa: E402

TREE = cache.REPO / "out" / "bin" / "remora-tree"
CALLER = cache.REPO / "out" / "bin" / "caller"
PROGRAM = cache.REPO / "out" / "lib" / "offload" / "tree.bpf.o"
KEYS, SEARCHES, BAR = 100_000, 1_000, 40
BUDGET_US = 5000
ENDLESS = 1 # a function of turns.bpf.c


def searched(out):
    """remora-tree's medians in microseconds, by way."""
    return {way: float(us) for way, us in re.findall(r"by (\w+): p50 ([\d.]+) us", out)}


def picture(ways, messages):
    most = max(ways.values())
    print(f"\n  a search among {KEYS:,} keys: median, and messages that the node got")
    for way, us in ways.items():
        print(f"    {way:6} {'#' * round(BAR * us / most):{BAR}} {us / 1000:.2f} ms, {messages[way]:.1f} messages")


def main(lab, _arguments):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        target = rmemlab.bpf_ready(lab, node)
        rmem.remora(memory, "node", "offload", "load", PROGRAM, "--space", "1")
        say.stage(f"{memory.name}: its kernel verified tree.bpf.o, and runs it beside the memory")
        before = node.counters()
        out = compute.run([TREE, target, "--keys", str(KEYS), "--searches", str(SEARCHES)], timeout=300).out
        after = node.counters()
        say.stage(out.splitlines()[0])
        messages = {way: (after[name] - before[name]) / SEARCHES for way, name in (("reads", "read"), ("query", "query"))}
        print(rmem.remora(memory, "node", "offload", "list").out)

        turns = rmemlab.bpf_program(lab, "turns", "turns")
        rmem.remora(memory, "node", "offload", "load", turns, "--space", "1", "--budget", str(BUDGET_US))
        ended = compute.run([CALLER, target, "100", str(ENDLESS)], check=False)
        if ended.rc != 1 or "used up its budget" not in ended.err:
            raise LabError(f"the endless program: {ended.out} {ended.err}")
        say.stage(f"a program that never ends was ended after {int(ended.err.split()[-1]):,} us; its budget is {BUDGET_US:,}")

        bad = rmemlab.bpf_program(lab, "refused", "bad", "-DBEYOND_SLICE")
        refused = memory.run([rmem.CLI, "node", "offload", "load", bad, "--space", "1"], check=False)
        if refused.rc == 0 or "verifier refuses it" not in refused.err:
            raise LabError(f"the bad program: {refused.out} {refused.err}")
        say.stage(f"a program that reaches beyond its slice:\n    {refused.err.strip()}")
    ways = searched(out)
    picture(ways, messages)
    print(f"\n  one query takes {ways['query'] / ways['reads']:.2f} of the time of its reads\n")
    # Copies count, too. A search reads four levels or more.
    if messages["query"] < 1 or messages["reads"] < 2 * messages["query"]:
        raise LabError(f"a search took {messages['query']} queries and {messages['reads']} reads")
    print("demo: ok", flush=True)
    return 0
