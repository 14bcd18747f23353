"""The experiments of the paper's Section 6 and some more: measured into tables, judged, drawn.

    parameters.toml   every number that an experiment depends on, at three scales
    ground            tweets (recorded or generated) as a trace of nodes and weights of tasks
    figNN, table3, …  one experiment each: its cells, how a cell is measured, how the table is drawn
    runner            measures cells one at a time; a cell that is in the table already is skipped
    claims            what the paper says in comparing sentences, as predicates over the tables
    report            tables to `docs/experiments.md` and a page of its own

Measuring writes tables and draws nothing; drawing and judging read tables and measure nothing.
"""
