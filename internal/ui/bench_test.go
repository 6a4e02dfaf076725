package ui_test

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl"
)

// BenchmarkPages shows that the pages of a queue with 100,000 tasks take as long as those of a queue with 100.
func BenchmarkPages(b *testing.B) {
	w := startWorld(b, "")
	sizes := map[string]int{"small": 100, "large": 100_000}
	if testing.Short() {
		sizes["large"] = 2000
	}
	for name, n := range sizes {
		for done := 0; done < n; done += 1000 {
			w.enqueue(b, min(1000, n), func(i int) pawl.Item { return job("a", fmt.Sprintf(`{"n":%d}`, i), pawl.Queue(name)) })
		}
	}
	for _, name := range []string{"small", "large"} {
		for page, path := range map[string]string{"queue": "/queues/" + name, "tasks": "/tasks?q=queue:" + name,
			"ready": "/tasks?q=queue:" +
				name + "+state:ready"} {
			b.Run(name+"/"+page, func(b *testing.B) {
				for b.Loop() {
					if resp, _ := w.get(b, path); resp.StatusCode != 200 {
						b.Fatal(resp.Status)
					}
				}
			})
		}
	}
}
