//go:build linux && cgo

package serve

/*
#include <malloc.h>

// The C library is glibc or another; only glibc's keeps so much.
static void limit_malloc(void) {
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_ARENA_MAX, 2);
#endif
}
*/
import "C"

// Pebble takes its memtables and cached blocks from C. As it comes, glibc puts freed memtables of up to 32 MiB into one of
// 16 arenas, among cached blocks, and never gives them back: a third of the server's memory. So large ones are mapped by
// themselves, and small ones share two arenas.
func init() { C.limit_malloc() }
