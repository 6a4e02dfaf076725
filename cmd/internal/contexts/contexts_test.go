package contexts

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// Changes made at the same time are all kept, and a change that fails leaves the file as it was.
func TestConcurrentChangesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pawl", "contexts.yaml")
	var want []string
	var all sync.WaitGroup
	for i := range 20 {
		name := fmt.Sprintf("c%02d", i)
		want = append(want, name)
		all.Go(func() {
			err := Change(path, func(all *Contexts) error {
				all.Contexts[name] = Context{Server: name + ":7295"}
				return nil
			})
			if err != nil {
				t.Errorf("add %s: %v", name, err)
			}
		})
	}
	all.Wait()
	no := errors.New("no")
	err := Change(path, func(all *Contexts) error {
		clear(all.Contexts)
		return no
	})
	if err != no {
		t.Errorf("a change that fails returns %v", err)
	}
	got, err := Load(path)
	if err != nil || !slices.Equal(got.Names(), want) {
		t.Errorf("after 20 concurrent additions there are %v, %v", got.Names(), err)
	}
}
