#!/bin/sh
# Runs a package's tests, then each of its benchmarks once: go test would link the same program a second time for them. Like the tests,
# they collect garbage as they would without make.
unset GOGC
"$@" && "$1" -test.run '^$' -test.bench . -test.benchtime 1x -test.short -test.timeout 30m
