"""The part of OpenTelemetry that the SDK uses, with the real names and signatures, for machines without it: Debian 12 has no package.
test_tracing.py uses the real one if it is installed."""
