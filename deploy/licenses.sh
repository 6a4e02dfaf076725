#!/bin/bash
# Copies the licenses of all modules in the programs to a directory, as a release ships them. Fails if a module has no license that is allowed.
# The licenses of the web UI's scripts and font are beside them, in internal/ui/web/static.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:?give a directory}
allowed='Apache License\s+Version 2\.0|Mozilla Public License,? [Vv]ersion 2\.0|Redistribution and use in source and binary forms|'
allowed+='Permission is hereby granted, free of charge, to any person|Permission to use, copy, modify, and(/or)? distribute this software for any\s+purpose|'
allowed+='free and unencumbered software released into the public domain'
format='{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}} {{.Dir}}{{end}}{{end}}'
modules=$(CGO_ENABLED=0 go list -deps -f "$format" ./cmd/... | sort -u)
[ -n "$modules" ]
rm -rf "$to"
while read -r module dir; do
	texts=()
	for file in "$dir"/*; do
		name=${file##*/}
		case ${name^^} in LICENSE* | LICENCE* | COPYING* | NOTICE*) [ -d "$file" ] || texts+=("$file") ;; esac
	done
	mkdir -p "$to/$module"
	grep -Pzq "$allowed" "${texts[@]:-/dev/null}" || { echo "module $module: its license is not allowed or not recognized: see $dir" >&2; exit 1; }
	cp "${texts[@]}" "$to/$module/"
done <<<"$modules"
chmod -R u+w "$to"
