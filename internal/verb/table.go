package verb

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Table holds the verbs of a package, which run on a part P of a node. It is filled while the program starts.
type Table[P any] struct{ table }

type table struct{ byName map[string]func() Call }

func (t *table) add(name string, call func() Call) {
	if t.byName == nil {
		t.byName = map[string]func() Call{}
	}
	if t.byName[name] != nil {
		panic(fmt.Sprintf("two verbs are named %q", name))
	}
	t.byName[name] = call
}

// Parts are the parts of a node, by the tables of the verbs that run on them. All are added before the first call.
type Parts struct {
	byTable map[*table]part
	byName  map[string]func() Call
}

// part runs the verbs of a table.
type part struct {
	on any
	by Runner // if set, it runs them
}

// Serve adds a part that runs the verbs of a table.
func (t *Table[P]) Serve(on P, parts *Parts) { parts.put(&t.table, part{on: on}) }

// ServeBy has a runner run the verbs of a table, in place of a part.
func (t *Table[P]) ServeBy(by Runner, parts *Parts) { parts.put(&t.table, part{by: by}) }

func (p *Parts) put(t *table, on part) {
	if p.byTable == nil {
		p.byTable, p.byName = map[*table]part{}, map[string]func() Call{}
	}
	for name, call := range t.byName {
		if call().Rule().Local {
			continue
		}
		if _, again := p.byTable[t]; p.byName[name] != nil && !again {
			panic(fmt.Sprintf("two verbs are named %q", name))
		}
		p.byName[name] = call
	}
	p.byTable[t] = on
}

// Do implements Runner.
func (p *Parts) Do(ctx context.Context, c Call) error {
	switch on := p.byTable[c.Rule().table]; {
	case on.by != nil:
		return on.by.Do(ctx, c)
	case on.on != nil:
		return c.Run(ctx, on.on)
	}
	return fmt.Errorf("nothing here runs the verb %q", c.Rule().Name)
}

// Named returns an empty call of a verb, for a request from another node; nil: no part has such a verb, or it is local.
func (p *Parts) Named(name string) Call {
	if call := p.byName[name]; call != nil {
		return call()
	}
	return nil
}

// Names returns the names of all verbs that other nodes may call, in no order.
func (p *Parts) Names() []string { return slices.Collect(maps.Keys(p.byName)) }
