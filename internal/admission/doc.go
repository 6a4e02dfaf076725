// Package admission bounds how much runs at once, and the memory that requests take: in all, and for each namespace, which has half at
// most so that it can't take all from the others. It knows nothing of what runs, and refuses nothing by itself.
package admission
