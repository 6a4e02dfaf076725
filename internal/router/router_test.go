package router_test

import (
	"reflect"
	"testing"

	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/forward"
)

// A router has the calls of its parts, and not what they are made with.
func TestRouterHasOnlyCalls(t *testing.T) {
	of := reflect.TypeFor[*router.Router]()
	if _, ok := of.MethodByName("Enqueue"); !ok {
		t.Error("a router has no Enqueue")
	}
	life := reflect.TypeFor[*forward.Lifetime]()
	for i := range life.NumMethod() {
		if name := life.Method(i).Name; name != "Close" && name != "Draining" { // which are the router's own
			if _, ok := of.MethodByName(name); ok {
				t.Errorf("a router has the method %s of its lifetime", name)
			}
		}
	}
}
