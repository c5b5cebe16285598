# SPDX-License-Identifier: GPL-2.0
"""EDM at work: eight writers and one reader of a node behind a slow port, by udp, by udp over EQDS and by EDM in turn.

    h1 .. h8   write 64 KiB at a time --+
    h9         reads 4 KiB at a time  --+-- bridge -- 100 Mbit/s, 64 KiB -- h10   memory node
    h11        scheduler              --+

`make demo-edm` boots solo.topo as a User Mode Linux, whose namespaces are the hosts, and calls main(). The programs and
the link are the same each time; for EQDS the port trims.
"""

import sys

from remoralab import cache, say
from remoralab.say import LabError

sys.path.insert(0, str(cache.REPO / "selftests" / "lab"))

from edmlab import CHUNK_BYTES, PORT_MBITS, QUEUE_BYTES, WAYS, WRITERS, EdmRack, medians, turn  # noqa: E402

TURNS, SECONDS, BAR = 2, 3, 40
# EDM has at most this part of udp's p99, and writes at least that part of its bytes.
PART, WRITTEN_PART = 0.3, 0.9


def bars(title, unit, figures, digits=1):
    """A bar for each way, all of one scale."""
    most = max(figures.values()) or 1
    print(f"\n  {title}, {unit}")
    for way, figure in figures.items():
        print(f"    {way:5} {'#' * max(round(BAR * figure / most), 1 if figure else 0):{BAR}} {figure:,.{digits}f}")


def picture(rows):
    bars("the reader's median", "ms", {way: row["p50_us"] / 1000 for way, row in rows.items()})
    bars("the reader's 99th percentile", "ms", {way: row["p99_us"] / 1000 for way, row in rows.items()})
    bars("longest queue of the port", "KiB", {way: row["queue_max"] / 1024 for way, row in rows.items()})
    bars("packets that found no room in it", "packets", {way: row["drops"] for way, row in rows.items()}, 0)
    bars("written by all", "Mbit/s", {way: row["mbits"] for way, row in rows.items()})


def main(lab, _arguments):
    rows = {way: [] for way in WAYS}
    with EdmRack(lab["compute"]) as rack:
        say.stage(f"{WRITERS} writers and a reader, behind a port of {PORT_MBITS} Mbit/s and {QUEUE_BYTES >> 10} KiB")
        for number in range(TURNS):
            for way in WAYS:
                row = turn(rack, way, SECONDS, number + 1)
                rows[way].append(row)
                say.stage(f"{way}: the reader waits {row['p50_us'] / 1000:.1f} ms, p99 {row['p99_us'] / 1000:.1f} ms")
    told = {way: medians(each) for way, each in rows.items()}
    picture(told)
    part = told["edm"]["p99_us"] / told["udp"]["p99_us"]
    print(f"\n  EDM has {part:.2f} of udp's 99th percentile, and a queue of "
          f"{told['edm']['queue_max'] / CHUNK_BYTES:.1f} chunks\n")
    if not told["udp"]["drops"]:
        raise LabError("the writers did not fill the port's queue: is the machine very busy?")
    if part > PART:
        raise LabError(f"at most {PART} of udp's is wanted")
    if told["edm"]["mbits"] < WRITTEN_PART * told["udp"]["mbits"]:
        raise LabError(f"EDM has to write at least {WRITTEN_PART} of udp's bytes")
    print("demo: ok", flush=True)
    return 0
