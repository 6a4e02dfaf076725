"""W3C's trace context."""

from __future__ import annotations

import re

from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, SpanContext, get_current_span, set_span_in_context


class TraceContextTextMapPropagator:
    def inject(self, carrier: dict[str, str], context: Context | None = None) -> None:
        said = get_current_span(context).get_span_context()
        if not said.is_valid:
            return
        carrier["traceparent"] = f"00-{said.trace_id:032x}-{said.span_id:016x}-{said.trace_flags:02x}"
        if said.trace_state:
            carrier["tracestate"] = said.trace_state

    def extract(self, carrier: dict[str, str], context: Context | None = None) -> Context:
        context = get_current() if context is None else context
        found = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", carrier.get("traceparent", ""))
        if found is None:
            return context
        said = SpanContext(int(found[1], 16), int(found[2], 16), True, int(found[3], 16), carrier.get("tracestate", ""))
        return set_span_in_context(Span(said), context) if said.is_valid else context
