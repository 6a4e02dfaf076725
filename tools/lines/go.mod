module github.com/pawlq/pawl/tools/lines

go 1.26
