"""A broken machine that fails often, to try the kit itself on."""

from meander.protocol.node.node import Node
from meander.testing.process import Classes


class Forgets(Node):
    def _wait(self, slot, chunk):
        """Forget what comes before the state, and say that it was applied."""
        self.waits += 1
        self.broken = True

    def _accept(self, slot, chunk):
        if getattr(self, "broken", False):
            return
        super()._accept(slot, chunk)


class Forgetful(Classes):
    node = Forgets
