// Package admission limits how much runs at once, and the memory that requests take: in total, and for each namespace, which gets
// at most half so that it cannot starve the others. It does not know what runs, and rejects nothing by itself.
package admission
