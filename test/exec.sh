#!/bin/sh
# Runs a package's tests, then each of its benchmarks once: go test would link the same program again for them.
#
# Tests of internal/ don't start the pawl binary. They collect garbage as seldom as the compiler does, which saves a fifth or more of their CPU
# (engine, shard). All other tests, and the servers that they start, collect it as usual.
case $PWD in
*/cmd/*) unset GOGC ;;
*/internal/*) ;;
*) unset GOGC ;;
esac
"$@" && "$1" -test.run '^$' -test.bench . -test.benchtime 1x -test.short -test.timeout 30m
