package verb

import "fmt"

// Table holds the verbs of a package by name. It is filled while the program starts.
type Table struct{ byName map[string]func() Call }

func (t *Table) add(name string, call func() Call) {
	if t.byName == nil {
		t.byName = map[string]func() Call{}
	}
	if t.byName[name] != nil {
		panic(fmt.Sprintf("two verbs are named %q", name))
	}
	t.byName[name] = call
}

// Call returns an empty call of a verb, for a request from another node; false: the table has no such verb.
func (t *Table) Call(name string) (Call, bool) {
	call, ok := t.byName[name]
	if !ok {
		return nil, false
	}
	return call(), true
}

// Names returns the names of the verbs, in no order.
func (t *Table) Names() (names []string) {
	for name := range t.byName {
		names = append(names, name)
	}
	return names
}
