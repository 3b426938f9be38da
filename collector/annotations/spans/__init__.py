"""Spans of other tracers: read from files of OpenTelemetry and Jaeger, and joined to requests."""
