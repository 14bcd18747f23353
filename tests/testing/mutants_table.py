"""What becomes of mutants, as a page of the documentation: counted here, not typed.

    python tests/testing/mutants_table.py count protocol|full [MINUTES] [WORDS]
    python tests/testing/mutants_table.py drawn FILE WORLD
    python tests/testing/mutants_table.py page

`count` lets those loose that were written by hand (with these words in their names), those first that
were never counted or longest ago, and keeps what came of them in `docs/tables/mutants.csv`, with the
commit. `drawn` takes what `meander mutants --json` said into `docs/tables/mutants-drawn.csv`, where
people write why a survivor changes nothing (`why`). `page` makes `docs/mutants.md` of the two.
"""

import csv
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

ROOT = Path(__file__).parents[2]
BY_HAND = ROOT / "docs" / "tables" / "mutants.csv"
DRAWN = ROOT / "docs" / "tables" / "mutants-drawn.csv"
PAGE = ROOT / "docs" / "mutants.md"
COLUMNS = ("world", "mutation", "where", "hunted", "most", "status", "seeds", "checker", "tree")
DRAWN_COLUMNS = (
    "world", "module", "number", "line", "kind", "before", "after", "status", "seeds", "checker",
    "why",
)  # fmt: skip


def read(path):
    """Read a table: rows by what names them."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            tuple(list(row.values())[: 2 if path == BY_HAND else 3]): row
            for row in csv.DictReader(file)
        }


def keep(path, rows, columns):
    """Write a table, whole."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def tree():
    """Name the commit that is checked out."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# --------------------------------------------------------------------------- counting


def protocol_mutants():
    """Give those of the protocol: name → (where, hunted, most, what lets it loose)."""
    from mutants import DEFAULT, HUNTS, MUTANTS, hunt

    found = {}
    for name in MUTANTS:
        plan = HUNTS.get(name, DEFAULT)
        hunted = f"{plan.faults}; {plan.nodes} nodes, {plan.tasks} tasks"

        def loose(name=name):
            seeds, by = hunt(name)
            return ("caught" if by else "survived"), seeds, by

        found[name] = "meander.protocol", hunted, plan.seeds_max, loose
    return found


def full_mutants():
    """Give those of processes."""
    from runtime_mutants import MUTANTS, SEEDS_MAX

    found = {}
    for broken in MUTANTS:
        hunted = f"{' '.join(broken.faults) or 'all'}; {broken.trial or 'every operator'}"

        def loose(broken=broken):
            catch = broken.caught()
            return catch.status, catch.seeds, catch.by

        found[broken.name] = broken.bug.edits[0].module, hunted, SEEDS_MAX, loose
    return found


def count(world, minutes, words):
    """Let mutants loose for so long, and keep what came of each."""
    mutants = protocol_mutants() if world == "protocol" else full_mutants()
    rows, here, until = read(BY_HAND), tree(), time.monotonic() + 60 * minutes
    kept = {(w, name) for w, name in rows if w != world or name in mutants}
    rows = {key: row for key, row in rows.items() if key in kept}
    todo = [n for n in mutants if words in n and rows.get((world, n), {}).get("tree") != here]
    for name in sorted(todo, key=lambda n: (world, n) in rows):
        if time.monotonic() > until:
            break
        where, hunted, most, loose = mutants[name]
        status, seeds, by = loose()
        values = world, name, where.removeprefix("meander."), hunted, most, status, seeds, by, here
        rows[world, name] = dict(zip(COLUMNS, values, strict=True))
        keep(BY_HAND, rows.values(), COLUMNS)
        print(f"{status} after {seeds} by {by or 'nobody'}: {name}", flush=True)  # noqa: T201


def drawn(file, world):
    """Take what the generator's mutants came to; what was written by hand about them stays."""
    rows = read(DRAWN)
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        module, number = told["module"].removeprefix("meander."), str(told["number"])
        why = rows.get((world, module, number), {}).get("why", "")
        values = (
            world, module, number, told["line"], told["kind"], told["before"], told["after"],
            told["status"], told["seeds"], told["by"], why,
        )  # fmt: skip
        rows[world, module, number] = dict(zip(DRAWN_COLUMNS, values, strict=True))
    keep(DRAWN, rows.values(), DRAWN_COLUMNS)


# --------------------------------------------------------------------------- the page


HEAD = """# Mutants

The product broken in one place at a time, and which checker of the [simulator](simulator.md)
noticed, after how many schedules. This page is made by `python tests/testing/mutants_table.py page`
from `docs/tables/mutants.csv` and `mutants-drawn.csv`. A mutant that falls over by itself (a
`TypeError` of its own) is an *accident*: the run fails, but no checker has caught it.
"""
BY_HAND_HEAD = """
## Written by hand, {world}

{about} {counts}; counted on the commits {trees}.

| mutation | where | schedules | seeds it took | of at most | checker |
| --- | --- | --- | --- | --- | --- |
"""
ABOUT = {
    "protocol": "`tests/protocol/mutants.py`, in the protocol's world.",
    "full": "`tests/testing/runtime_mutants.py`, in the full world.",
}
DRAWN_HEAD = """
## Drawn by chance

`meander mutants` finds places in the source and breaks them in one of ten ways. These were drawn
before anybody knew what would become of them (`--seed 20261118`, 30 for each world). {counts}. What
survived was looked at one by one.

| world | mutant | caught by | seeds | if not caught: why |
| --- | --- | --- | --- | --- |
"""


def page():
    """Write the page."""
    text, rows = HEAD, list(read(BY_HAND).values())
    for world, mutants in (("protocol", protocol_mutants()), ("full", full_mutants())):
        some = [row for row in rows if row["world"] == world and row["mutation"] in mutants]
        trees = ", ".join(f"{t} ({n})" for t, n in Counter(r["tree"] for r in some).items())
        for name in mutants.keys() - {row["mutation"] for row in some}:
            where, hunted, most, _ = mutants[name]
            values = world, name, where.removeprefix("meander."), hunted, f"{most}", "not counted"
            some.append(dict(zip(COLUMNS, (*values, "", "", ""), strict=True)))
        some.sort(key=lambda row: list(mutants).index(row["mutation"]))
        text += BY_HAND_HEAD.format(
            world=f"the {world} world", about=ABOUT[world], counts=_counts(some), trees=trees
        )
        for row in some:
            by = f"`{row['checker']}`" if row["status"] == "caught" else f"**{row['status']}**"
            row["where"] = row["where"].removeprefix("runtime.")
            cells = row["mutation"], row["where"], row["hunted"], row["seeds"], row["most"], by
            text += f"| {' | '.join(cells)} |\n"
    some = list(read(DRAWN).values())
    if some:
        text += DRAWN_HEAD.format(counts=_counts(some))
        for row in some:
            by = f"`{row['checker']}`" if row["status"] == "caught" else row["status"]
            change = f"{_short(row['before'])} → {_short(row['after'])}"
            named = f"{row['module']}#{row['number']}, {row['kind']}: `{change}`"
            cells = row["world"], named, by, row["seeds"], row["why"]
            text += f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"
    PAGE.write_text(text, encoding="utf-8")


def _counts(rows):
    found = Counter(row["status"] for row in rows)
    return f"{len(rows)} mutants: " + ", ".join(f"{n} {status}" for status, n in found.items())


def _short(text):
    return text if len(text) <= 60 else text[:57] + "…"


def main(what, *rest):
    """Do what is asked for."""
    if what == "count":
        world, minutes, *words = rest if len(rest) > 1 else (*rest, "1e9")
        count(world, float(minutes), " ".join(words))
    elif what == "drawn":
        drawn(*rest)
    else:
        page()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["page"]))
