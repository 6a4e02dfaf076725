module github.com/pawlq/pawl/tools/mutants

go 1.26
