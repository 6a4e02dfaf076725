#!/bin/sh
# Runs a package's tests, then each of its benchmarks once: go test would link the same program a second time for them.
#
# Tests of internal/ start no pawl program. They collect garbage as seldom as the compiler does, which saves a fifth of their processor time or more
# (engine, shard). All others collect it as they would without make, and so do the servers that they start.
case $PWD in
*/cmd/*) unset GOGC ;;
*/internal/*) ;;
*) unset GOGC ;;
esac
"$@" && "$1" -test.run '^$' -test.bench . -test.benchtime 1x -test.short -test.timeout 30m
