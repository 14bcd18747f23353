"""How `check` tries an operator: rows compared, a plain run, and every other way to run it."""
