"""What users write, and what is built in.

    base        the operator and its context           keyed       aggregates by key, word count
    tasks       the tasks that a node holds            words       texts to words
    timers      when a task wants to be called, and for which key
    hashing     key → hash → task, equal to Spark      split       a batch by task
    table       the keyed table                        state       dumps back into tables
    aggregates, layout, keys, columns                  what the table is made of
    patterns/   texts to patterns, and the maximal frequent ones
    kernels     the compiled loops

Only `model` and `errors` are imported from the rest of Meander: no Spark, socket or clock.
"""

from __future__ import annotations

from meander.operators.aggregates import Aggregate
from meander.operators.base import Context, Operator
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.keyed import KeyedAggregate, WordCount
from meander.operators.layout import Layout
from meander.operators.patterns.detector import FrequentPatterns
from meander.operators.patterns.rules import STOP_WORDS, PatternRules
from meander.operators.patterns.texts import generate
from meander.operators.split import Split, split
from meander.operators.table import KeyedTable
from meander.operators.tasks import TaskStates
from meander.operators.timers import Timer, Timers
from meander.operators.words import tokenise

__all__ = [
    "STOP_WORDS",
    "Aggregate",
    "Context",
    "FrequentPatterns",
    "KeyedAggregate",
    "KeyedTable",
    "Layout",
    "Operator",
    "PatternRules",
    "Split",
    "TaskStates",
    "Timer",
    "Timers",
    "WordCount",
    "generate",
    "hash_columns",
    "split",
    "tasks_of",
    "tokenise",
]
