# SPDX-License-Identifier: GPL-2.0
"""The output of every bench: a table to read and out/bench/NAME.json.

    {"bench": "rmb", "rows": [{"case": "randread-4k-qd1", "metric": "p50", "unit": "us",
     "better": "lower", "ours": 1.0, "peers": {"nbd": 1.0}}]}

A figure is the median of the rounds of one run, in which all took turns; the table shows the spread
beside it. The ratio compares with the better peer, floors left out. Not every peer has a figure in every row.
"""

import json
import pathlib
import statistics

REPO = pathlib.Path(__file__).resolve().parents[2]


class Samples:
    """Figures of one run: by case and metric, of Remora and each peer, one for each round."""

    def __init__(self, bench, ours, floors=()):
        self.bench, self.ours, self.floors = bench, ours, floors
        self.kinds = {}  # (case, metric): (unit, better)
        self.values = {}  # (case, metric): {who: [figure, ...]}

    def add(self, case, metric, unit, better, who, figure):
        self.kinds[(case, metric)] = (unit, better)
        self.values.setdefault((case, metric), {}).setdefault(who, []).append(figure)

    def rows(self):
        rows = []
        for (case, metric), by_whom in self.values.items():
            unit, better = self.kinds[(case, metric)]
            medians = {who: statistics.median(figures) for who, figures in by_whom.items()}
            ours = medians.pop(self.ours)
            rows.append({"case": case, "metric": metric, "unit": unit, "better": better,
                         "ours": round(ours, 3), "peers": {who: round(x, 3) for who, x in medians.items()}})
        return rows

    def ratio(self, row):
        """Remora's figure over the better peer's. A floor, which does nothing, is no peer."""
        peers = [figure for who, figure in row["peers"].items() if who not in self.floors]
        best = (min if row["better"] == "lower" else max)(peers, default=0)
        return row["ours"] / best if best else float("nan")

    def _cell(self, row, who):
        figures = self.values[(row["case"], row["metric"])].get(who)
        if not figures:
            return "-"
        return f"{statistics.median(figures):.4g} [{min(figures):.3g}..{max(figures):.3g}]"

    def table(self):
        rows = self.rows()
        names = [self.ours, *dict.fromkeys(who for row in rows for who in row["peers"])]
        lines = [["case", "metric", *names, "ratio"]]
        for row in rows:
            lines.append([row["case"], f"{row['metric']}, {row['unit']}",
                          *(self._cell(row, who) for who in names), f"{self.ratio(row):.2f}".replace("nan", "-")])
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                         for line in lines)

    def write(self, keep=False, path=None):
        """The file. keep: a part of the bench was run, and the other parts' rows of an earlier run stay."""
        path = path or REPO / "out" / "bench" / f"{self.bench}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = self.rows()
        if keep and path.exists():
            old = json.loads(path.read_text())["rows"]
            rows = [row for row in old if (row["case"], row["metric"]) not in self.values] + rows
        path.write_text(json.dumps({"bench": self.bench, "rows": rows}, indent=1) + "\n")
        return path
