"""A broken machine that fails often, to try the kit itself on."""

from dataclasses import replace

from meander.protocol.node.intake import Intake
from meander.protocol.node.node import Node
from meander.testing.process import Classes


class Forgets(Intake):
    def _wait(self, slot, chunk):
        """Forget what comes before the state, and say that it was applied."""
        self.waits += 1
        self.broken = True

    def _accept(self, slot, chunk):
        if getattr(self, "broken", False):
            return
        super()._accept(slot, chunk)


class ForgetfulNode(Node):
    parts = replace(Node.parts, intake=Forgets)


class Forgetful(Classes):
    node = ForgetfulNode
