"""Bugs that the product had, to be put back one at a time: the simulator must find each of them."""

from meander_lab.mutants.bugs import Bug, Edit

TURNS = "meander.runtime.process.turns"
COPYING = "meander.runtime.process.copying"
PROCESSOR = "meander.spark.processor.state"
FILES = "meander.runtime.store.filesystem"
DURABLE = "meander.runtime.store.durable"
OVERSIGHT = "meander.runtime.roles.oversight"
RETRIEVER = "meander.protocol.node.retriever"
INSTALLS = "meander.protocol.node.installs"
PRESENCE = "meander.runtime.wire.presence"
ANSWERING = "meander.runtime.store.answering"
ARCHIVE = "meander.protocol.master.archive"
MESSAGES = "meander.protocol.messages"
FOLLOWING = "meander.runtime.clients.following"

FAILED_LISTING_IS_EMPTY = Edit(
    FILES,
    """                entries = self._disk.scan(self._prefix + at)
            except FileNotFoundError:""",
    """                entries = self._disk.scan(self._prefix + at)
            except OSError:""",
)

BUGS = [
    Bug(
        "1 rows are acknowledged and lost when an operator raises while a node is asked something",
        (
            Edit(
                TURNS,
                """            self.settle()
        except BaseException as error:
            request.future.set_exception(error)
            raise
        try:
""",
                """            self.settle()
""",
            ),
            Edit(
                TURNS,
                """            if isinstance(error, OperatorError) or not refused:""",
                """            if not refused:""",
            ),
        ),
    ),
    Bug(
        "2 copies ahead show outputs that are not durable",
        (
            Edit(
                COPYING,
                'found.outputs.durable = int.from_bytes(blob[:DURABLE_BYTES], "little")',
                "found.outputs.durable = found.outputs.last",
            ),
        ),
    ),
    Bug(
        "3 deleted keys come back",
        (
            Edit(
                PROCESSOR,
                """        "_sampled",\n""",
                """        "_sampled",\n        "_spare",\n""",
            ),
            Edit(
                PROCESSOR,
                """        self.forgotten = 0\n""",
                """        self.forgotten = 0\n        self._spare = None\n""",
            ),
            Edit(
                PROCESSOR,
                """            if len(self.stamps) > self.layout.gone_max + 2 * len(self.entries):
                self.stamps = {k: v for k, v in self.stamps.items() if k in self.entries}
                self.forgotten = self.version
""",
                "",
            ),
            Edit(
                PROCESSOR,
                """        self.version += 1
        return self.version - 1
""",
                """        self.version += 1
        if self._spare is not None:
            spare, self._spare = self._spare, None
            kept = self.stamps.items()
            self.stamps = {k: v for k, v in kept if v > spare or k in self.entries}
        if len(self.stamps) > self.layout.gone_max + 2 * len(self.entries):
            self._spare = self.version - 1
            return None
        return self.version - 1
""",
            ),
        ),
    ),
    Bug(
        "4 a failed listing un-fences an old driver",
        (
            FAILED_LISTING_IS_EMPTY,
            Edit(
                DURABLE,
                """            claims = yield from self._claims()
            if any(n > generation for n, _ in claims):
                return True
            listed = any(path == self._own for _, path in claims)
""",
                """            claims = yield from self._claims()
            return any(n > generation for n, _ in claims)
            listed = True
""",
            ),
        ),
    ),
    Bug(
        "4 a failed listing makes a checkpoint look empty",
        (
            FAILED_LISTING_IS_EMPTY,
            Edit(
                DURABLE,
                """            if parts and None not in parts:
                return path, b"".join(part for part in parts if part is not None)
""",
                """            return (path, b"".join(parts)) if parts and None not in parts else None
""",
            ),
        ),
    ),
    Bug(
        "5 the lease sits on the operator's thread",
        (Edit(OVERSIGHT, "        process.keep_lease()\n", ""),),
    ),
    Bug(
        "6 recovery is quadratic when reads are slow",
        (
            Edit(
                RETRIEVER,
                "            if name in self._loading:\n",
                "            if name in self._loading and False:\n",
            ),
            Edit(
                RETRIEVER,
                "        elif self._may_load() and self._again.due(self.turn.now):\n",
                "        else:\n",
            ),
            Edit(
                RETRIEVER,
                "            elif self._may_load():\n",
                "            elif True:\n",
            ),
        ),
    ),
    Bug(
        "7 without checkpoints a loss is silent",
        (
            Edit(
                INSTALLS,
                "return not self.gated and slot.task not in self.unconfirmed",
                "return not self.gated",
            ),
            Edit(
                RETRIEVER,
                "TaskState(slot.task, app, gated=True)",
                "TaskState(slot.task, app, gated=self.installs.gated)",
            ),
            Edit(
                RETRIEVER,
                "self.operator, gated=True, load=load",
                "self.operator, gated=self.installs.gated, load=load",
            ),
        ),
    ),
    Bug(
        "8 one broken stream is a death certificate",
        (
            Edit(
                PRESENCE,
                """        if self._streams[key] > 0:
            return None
        del self._streams[key]
""",
                "",
            ),
            Edit(
                PRESENCE,
                """        if found is not Pulse.DEAD:
            return None
        if question.number < LOOKS:
            return question._replace(wait_s=PAUSE_S, number=question.number + 1)
""",
                "",
            ),
        ),
    ),
    Bug(
        "9 the store stops silently: an error that is no OSError",
        (Edit(ANSWERING, "    except Exception as error:\n", "    except OSError as error:\n"),),
    ),
    Bug(
        "9 the store stops silently: the manifest is not asked for again",
        (
            Edit(
                ARCHIVE,
                """        self._writing = False
        if event.again:
            self._failed(event.fault)
            return
""",
                """        if event.again:
            return
        self._writing = False
""",
            ),
        ),
    ),
    Bug(
        "9 a failing manifest is written every tick",
        (
            Edit(
                ARCHIVE,
                "if self._writing or not self.unsaved or not self._again.due(now):",
                "if self._writing or not self.unsaved:",
            ),
        ),
    ),
    Bug(
        "a driver that is replaced sweeps its successor's log",
        (
            Edit(
                MESSAGES,
                "generation_of(key) < self.below",
                "generation_of(key) != self.below",
            ),
        ),
    ),
    Bug(
        "sinks, at least once, let go of outputs that are not durable: others come under their numbers",
        (
            Edit(FOLLOWING, "        if not self._early:\n", "        if True:\n"),
            Edit(
                FOLLOWING,
                "                self._forget(task)\n",
                "                forgotten = min(first - 1, self._released[task])\n"
                "                self._heard[task] = max(self._durable[task], forgotten)\n",
            ),
        ),
    ),
]
"""The numbers are those of the list in which they were found; some had several ways. Those without one
the simulator itself has found."""
