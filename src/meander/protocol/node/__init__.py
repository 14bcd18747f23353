"""A node and its parts, with the paper's names: manager, retriever, rerouter, and what came after."""
