"""Classes written for `transformWithState`, as operators."""
