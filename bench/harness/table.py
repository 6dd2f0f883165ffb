"""Rows of the result: a figure of each subject, their ratio, and whether the target is met."""

import statistics
from dataclasses import dataclass


@dataclass
class Row:
    """One line of the table. `target` is on the ratio to `against`, or on the figure if that is None."""

    key: str
    title: str
    figure: str
    unit: str
    against: str | None = None
    at_most: float | None = None
    at_least: float | None = None
    instead: str | None = None  # the figure of the others, where they have not the same

    def values(self, rounds: list[dict], subject: str) -> list[float | None]:
        figure = self.instead if self.instead and subject != "gantry" else self.figure
        return [r.get(self.key, {}).get(subject, {}).get(figure) for r in rounds]

    def judge(self, rounds: list[dict]) -> dict | None:
        """Medians over the rounds; the ratio is the median of each round's own."""
        shown = {s: median(self.values(rounds, s)) for s in ("gantry", "floor", "pipe")}
        if not any(value is not None for value in shown.values()):
            return None
        pairs = zip(self.values(rounds, "gantry"), self.values(rounds, self.against or "floor"))
        ratio = median([a / b for a, b in pairs if a is not None and b])
        subject = ratio if self.against else shown["gantry"]
        met = None
        if subject is not None and self.at_most is not None:
            met = subject <= self.at_most
        if subject is not None and self.at_least is not None:
            met = subject >= self.at_least
        return {"workload": self.title, "unit": self.unit, **shown, "ratio": ratio,
                "against": self.against or "floor", "target": self.target(), "met": met}

    def target(self) -> str | None:
        bound = self.at_least if self.at_most is None else self.at_most
        if bound is None:
            return None
        sign = "≥" if self.at_most is None else "≤"
        return f"{sign} {bound:g}× {self.against}" if self.against else f"{sign} {bound:g} {self.unit}"


def median(values: list[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return statistics.median(there) if there else None


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def markdown(rows: list[dict]) -> str:
    lines = ["| workload | gantry | floor | pipe | ratio | target | met? |", "|---|--:|--:|--:|--:|---|---|"]
    for row in rows:
        met = {True: "yes", False: "**no**", None: "–"}[row["met"]]
        ratio = f"{row['ratio']:.2f}× {row['against']}" if row["ratio"] is not None else "–"
        lines.append(f"| {row['workload']}, {row['unit']} | {number(row['gantry'])} | {number(row['floor'])} | "
                     f"{number(row['pipe'])} | {ratio} | {row['target'] or '–'} | {met} |")
    return "\n".join(lines)
