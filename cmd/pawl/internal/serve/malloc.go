//go:build linux && cgo

package serve

/*
#include <malloc.h>

// The C library may not be glibc; only glibc retains this much.
static void limit_malloc(void) {
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_ARENA_MAX, 2);
#endif
}
*/
import "C"

// Pebble allocates its memtables and cached blocks in C. By default glibc puts freed memtables of up to 32 MiB into one
// of 16 arenas, among cached blocks, and never returns them: a third of the server's memory. So large allocations are
// mapped on their own, and small ones share two arenas.
func init() { C.limit_malloc() }
