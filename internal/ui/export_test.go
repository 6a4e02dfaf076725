package ui

// Sets are all pages, for tests outside the package.
var Sets = sets
