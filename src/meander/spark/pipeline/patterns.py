"""The frequent-pattern application as Spark expressions: patterns of a text, and when they live.

Problem. A window of length ω slides over the stream. Each tweet enters at its time t (+1 for all
its patterns) and leaves at t+ω (-1). A pattern is a set of 1 … `size_max` distinct words of one
tweet, written in ascending order with one space between them.

What a slot costs and holds, for slots `[kL, (k+1)L)`:

    work   events, both kinds, whose time falls into the slot
    state  distinct patterns of the tweets alive at the slot's end T = (k+1)L:  t < T <= t+ω

A tweet is alive at the ends of the slots `floor(t/L) … floor((t+ω)/L) - 1`: none or one of them
when ω < L, about ω/L of them otherwise. That many copies are made: a window of many slots is costly.

Growth. c words have c + c(c-1)/2 + … patterns, so `words_max` bounds the words taken of a tweet
(the first ones in ascending order after stop words are gone).

Reference: the paper's Section 6 and Figure 10 (its loop, which only suppresses subsets of frequent
patterns, changes neither the counters nor their number).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from meander.operators.patterns.rules import PatternRules
from meander.spark.pipeline.events import slot_of
from meander.spark.pipeline.words import words

__all__ = ["PatternRules", "alive", "comings_and_goings", "pattern_words", "patterns"]


def pattern_words(text: Column, rules: PatternRules) -> Column:
    """Give the words of a text that its patterns are made of: distinct, ascending."""
    kept = F.array_distinct(words(text))
    if rules.dictionary:
        kept = F.filter(kept, lambda w: w.isin(sorted(rules.dictionary)))
    if rules.stop_words:
        kept = F.filter(kept, lambda w: ~w.isin(sorted(rules.stop_words)))
    return F.slice(F.sort_array(kept), 1, rules.words_max)


def patterns(chosen: Column, size_max: int) -> Column:
    """Give all patterns of these words, as an array of strings.

    Level k+1 appends to each pattern of level k every later word. An entry of a level is a pattern
    and the index of its last word.

    Args:
        chosen: a plain column (not an expression, which would be computed once per pattern).
        size_max: most words in a pattern.
    """
    level = F.transform(chosen, lambda w, i: F.struct(w.alias("p"), i.alias("last")))
    levels = [level]
    for _ in range(1, size_max):
        level = F.flatten(F.transform(level, lambda entry: _extended(entry, chosen)))
        levels.append(level)
    return F.concat(*[F.transform(level, lambda entry: entry["p"]) for level in levels])


def _extended(entry: Column, chosen: Column) -> Column:
    """Append every word after the entry's last one."""
    later = F.slice(chosen, entry["last"] + 2, F.size(chosen))
    return F.transform(
        later,
        lambda w, i: F.struct(
            F.concat(entry["p"], F.lit(" "), w).alias("p"), (entry["last"] + i + 1).alias("last")
        ),
    )


def comings_and_goings(events: DataFrame, rules: PatternRules, slot_s: int) -> DataFrame:
    """One row per pattern of each event: `key`, and the slots `enters` and `leaves`."""
    return _lifetimes(events, rules, slot_s).select(
        "enters", "leaves", F.explode(patterns(F.col("chosen"), rules.size_max)).alias("key")
    )


def alive(events: DataFrame, rules: PatternRules, slot_s: int) -> DataFrame:
    """One row per slot and distinct pattern that is alive at the slot's end: `slot`, `key`."""
    ends = F.sequence(F.col("enters"), F.col("leaves") - 1)
    return (
        _lifetimes(events.where(_survives(rules, slot_s)), rules, slot_s)
        .select(F.explode(ends).alias("slot"), "chosen")
        .select("slot", F.explode(patterns(F.col("chosen"), rules.size_max)).alias("key"))
        .distinct()
    )


def _lifetimes(events: DataFrame, rules: PatternRules, slot_s: int) -> DataFrame:
    """Give the slots in which a tweet enters and leaves the window, and its words."""
    return events.select(
        slot_of(F.col("_us"), slot_s).alias("enters"),
        slot_of(_leaving(rules), slot_s).alias("leaves"),
        pattern_words(F.col("text"), rules).alias("chosen"),
    )


def _survives(rules: PatternRules, slot_s: int) -> Column:
    """Whether a tweet is still in the window when its slot ends."""
    return slot_of(_leaving(rules), slot_s) > slot_of(F.col("_us"), slot_s)


def _leaving(rules: PatternRules) -> Column:
    return F.col("_us") + F.lit(rules.window_s * 1_000_000).cast("long")
