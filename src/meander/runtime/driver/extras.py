"""What a deployment loads by name, because it lies above or is an extra: its page, traces, its view."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

from meander.errors import InputError


class Page(Protocol):
    """A page that is being served."""

    @property
    def link(self) -> str:
        """Its first link, with the token."""

    def stop(self) -> None:
        """Serve it no longer."""


def load_page() -> ModuleType:
    """Load what serves pages; before anything is started, so that nobody waits to hear what is missing.

    Raises:
        InputError: if what it needs is not installed.
    """
    try:
        return import_module("meander.dashboard.server")
    except ModuleNotFoundError as error:
        raise InputError(
            f"a dashboard needs {error.name}: pip install 'meander[dashboard]'"
        ) from None


def open_page(op: Any) -> Page | None:
    """Open the page of a deployment, if it wants one.

    Raises:
        InputError: if its port is taken.
    """
    if not op.driver.deployment.dashboard:
        return None
    try:
        opened: Page = load_page().open_dashboard(op)
    except BaseException:
        op.driver.stop()
        raise
    return opened


def trace_rescales(op: Any, provider: Any) -> None:
    """Have the rescales of a deployment traced from now on.

    Raises:
        InputError: if what it needs is not installed, or the provider is none.
    """
    if provider is not None and not hasattr(provider, "get_tracer"):
        raise InputError(f"a provider is a TracerProvider of OpenTelemetry, not {provider!r}")
    try:
        tracing = import_module("meander.dashboard.traces")
    except ModuleNotFoundError as error:
        raise InputError(f"traces need {error.name}: pip install 'meander[otel]'") from None
    tracing.trace_rescales(op, provider)


def small_view(op: Any) -> str | None:
    """Draw a deployment as a piece of HTML; None: it has ended."""
    if op.driver.stopping or op.driver.failure is not None:
        return None
    drawn: str = import_module("meander.dashboard.notebook").view(op)
    return drawn


def live_view(op: Any) -> None:
    """Show a deployment in the notebook that runs this, drawn anew every second.

    Raises:
        NotImplementedError: if there is no notebook, or nothing to see any more.
    """
    if op.driver.stopping or op.driver.failure is not None:
        raise NotImplementedError
    import_module("meander.dashboard.notebook").display(op)
