"""What users write, and what is built in.

    base        the operator and its context           keyed       aggregates by key, word count
    tasks       the tasks that a node holds            words       texts to words
    timers      when a task wants to be called, and for which key
    hashing     key → hash → task, equal to Spark      split       a batch by task
    table       the keyed table                        state       dumps back into tables
    aggregates, layout, keys, columns                  what the table is made of
    topology    operators by name, and the streams between them
    windows, sessions                                  aggregates by key and window of event time
    joins, lookups                                     two streams; a stream and a table
    top, distinct, projection                          the best rows, the first rows, rows one by one
    inputs      several inputs of one operator         builtin     what the built-in ones share
    window      which windows a row is in              ticks       timers of tasks
    collecting  rows that make an operator raise, set aside: `letters`
    panes, session_rows, join_rows, best_rows, rows, floors   what their states are made of
    patterns/   texts to patterns, and the maximal frequent ones
    kernels     the compiled loops

Only `model` and `errors` are imported from the rest of Meander: no Spark, socket or clock.
"""

from __future__ import annotations

from meander.operators.aggregates import Aggregate
from meander.operators.base import Context, Operator
from meander.operators.collecting import collecting
from meander.operators.distinct import Deduplicate, Distinct
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.inputs import Input
from meander.operators.joins import StreamJoin
from meander.operators.keyed import KeyedAggregate, WordCount
from meander.operators.layout import Layout
from meander.operators.lookups import TableJoin
from meander.operators.patterns.detector import FrequentPatterns
from meander.operators.patterns.rules import STOP_WORDS, PatternRules
from meander.operators.patterns.stages import PatternGenerator, PatternReporter, frequent_patterns
from meander.operators.patterns.texts import generate
from meander.operators.projection import Project
from meander.operators.sessions import SessionAggregate
from meander.operators.split import Split, split
from meander.operators.table import KeyedTable
from meander.operators.tasks import TaskStates
from meander.operators.timers import Timer, Timers
from meander.operators.top import TopK
from meander.operators.topology import Edge, Topology
from meander.operators.window import Window, sliding, tumbling, until
from meander.operators.windows import WindowAggregate
from meander.operators.words import tokenise

__all__ = [
    "STOP_WORDS",
    "Aggregate",
    "Context",
    "Deduplicate",
    "Distinct",
    "Edge",
    "FrequentPatterns",
    "Input",
    "KeyedAggregate",
    "KeyedTable",
    "Layout",
    "Operator",
    "PatternGenerator",
    "PatternReporter",
    "PatternRules",
    "Project",
    "SessionAggregate",
    "Split",
    "StreamJoin",
    "TableJoin",
    "TaskStates",
    "Timer",
    "Timers",
    "TopK",
    "Topology",
    "Window",
    "WindowAggregate",
    "WordCount",
    "collecting",
    "frequent_patterns",
    "generate",
    "hash_columns",
    "sliding",
    "split",
    "tasks_of",
    "tokenise",
    "tumbling",
    "until",
]
