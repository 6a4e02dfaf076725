"""As much of OpenTelemetry as the SDK uses, with the names and signatures of the real one, for machines that are without it: Debian 12 has no
package of it. test_tracing.py takes the real one if it is installed."""
