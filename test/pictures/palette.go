package main

import (
	"cmp"
	"image/color"
	"slices"
)

// mostFrequent returns the colors of the 256 largest bins.
func mostFrequent[B any](bins map[color.RGBA]B, of func(B) (int, color.Color)) (out color.Palette) {
	keys := make([]color.RGBA, 0, len(bins))
	size := map[color.RGBA]int{}
	best := map[color.RGBA]color.Color{}
	for key, b := range bins {
		keys = append(keys, key)
		size[key], best[key] = of(b)
	}
	slices.SortFunc(keys, func(a, b color.RGBA) int {
		if c := cmp.Compare(size[b], size[a]); c != 0 {
			return c
		}
		if less(a, b) {
			return -1
		}
		return 1
	})
	for _, key := range keys[:min(len(keys), 256)] {
		out = append(out, best[key])
	}
	return out
}

// less orders colors, so that the same picture always gets the same palette.
func less(a, b color.RGBA) bool {
	return cmp.Or(cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B)) < 0
}
