#!/bin/bash
# Lists the packages to test under the race detector: those that start goroutines, and those that guard what they share if their own tests start
# goroutines. The others run under it as parts of these: it would find nothing in their own tests.
set -euo pipefail
starts='^\s*go |\.Go\(|AfterFunc'
guards='sync\.|atomic\.'
go list -f '{{if and .GoFiles (or .TestGoFiles .XTestGoFiles)}}{{.ImportPath}} {{.Dir}}{{end}}' . ./internal/... ./outbox/... | while read -r package dir; do
	mapfile -t code < <(find "$dir" -maxdepth 1 -name '*.go' ! -name '*_test.go')
	mapfile -t tests < <(find "$dir" -maxdepth 1 -name '*_test.go')
	if grep -qE "$starts" "${code[@]}" || { grep -qE "$guards" "${code[@]}" && grep -qE "$starts|synctest|\.Parallel\(" "${tests[@]}"; }; then
		echo "$package"
	fi
done
