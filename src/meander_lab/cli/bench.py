"""`meander bench`: what the planners and the router do on this machine."""

from __future__ import annotations

import argparse

from meander.cli.main import CliCommand, add_commands

BENCHES = (
    CliCommand(
        "plan", "ssm against the paper's algorithm and a MILP", "meander_lab.cli.bench_plan"
    ),
    CliCommand("pipeline", "a profile against plain Spark SQL", "meander_lab.cli.bench_pipeline"),
    CliCommand("routing", "routing by intervals against a map", "meander_lab.cli.bench_routing"),
    CliCommand("publish", "a new table for 1,000 nodes", "meander_lab.cli.bench_publish"),
    CliCommand("live", "a live migration against a restart", "meander_lab.cli.bench_live"),
    CliCommand("vacate", "nodes leave under load, again and again", "meander_lab.cli.bench_vacate"),
    CliCommand("restart", "the driver dies and comes back", "meander_lab.cli.bench_restart"),
    CliCommand("transfer", "how fast states move without load", "meander_lab.cli.bench_transfer"),
    CliCommand("throughput", "what elasticity costs", "meander_lab.cli.bench_throughput"),
    CliCommand("messages", "a message against bare Flight", "meander_lab.cli.bench_messages"),
    CliCommand("skew", "one key that is half of the stream", "meander_lab.cli.bench_skew"),
    CliCommand("checkpoint", "what durability costs and gives", "meander_lab.cli.bench_checkpoint"),
    CliCommand("store", "a commit on a disk and on S3", "meander_lab.cli.bench_store"),
    CliCommand("tasks", "a checkpoint by the number of tasks", "meander_lab.cli.bench_tasks"),
    CliCommand("spark", "the sink against Spark's own aggregation", "meander_lab.cli.bench_spark"),
    CliCommand("autoscale", "our autoscaler against others'", "meander_lab.cli.bench_autoscale"),
    CliCommand("autoscale-live", "a spike, and real nodes", "meander_lab.cli.bench_autoscale_live"),
    CliCommand("nexmark", "NexMark against Structured Streaming", "meander_lab.cli.bench_nexmark"),
    CliCommand("realtime", "Kafka to Kafka, record by record", "meander_lab.cli.bench_realtime"),
    CliCommand("topology", "operators moved together", "meander_lab.cli.bench_topology"),
    CliCommand("patterns", "frequent patterns as a topology", "meander_lab.cli.bench_patterns"),
    CliCommand(
        "processors", "processors against transformWithState", "meander_lab.cli.bench_processors"
    ),
    CliCommand("adopt", "a query of Spark's taken over, and back", "meander_lab.cli.bench_adopt"),
    CliCommand("table", "the keyed table against a Python dict", "meander_lab.cli.bench_table"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benches as commands of their own."""
    add_commands(parser, BENCHES, parser.get_default("argv"))


def run(args: argparse.Namespace) -> int:
    """Not reached: a bench is required and brings its own `run`."""
    raise NotImplementedError
