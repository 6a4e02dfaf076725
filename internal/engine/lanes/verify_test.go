package lanes

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// release marks the cold lanes of a type as still to be put in order.
func release(s *Set, typ string) *coldType {
	t := s.cold.byType[1][typ]
	s.cold.order[1].drop(t)
	delete(s.cold.byType[1], typ)
	s.cold.released[1] = append(s.cold.released[1], t)
	return t
}

// Verify finds whatever differs from the rows or is in a wrong place. The keys "", "a" and "d" have flows; "b", with
// three tasks, "c" and "e" are cold. Type y is held, and z is on trial.
func TestVerifyFinds(t *testing.T) {
	was := Bounds
	defer func() { Bounds = was }()
	Bounds.Warm, Bounds.Head, Bounds.Heads = 3, 3, 10
	lane := func(s *Set, key, typ string) *Lane {
		return s.byName[schema.LaneName{Priority: task.Normal, Key: key, Type: typ}]
	}
	for name, c := range map[string]struct {
		spoil   func(s, again *Set)
		reading bool
		want    string // ""; nothing
	}{
		"nothing": {func(*Set, *Set) {}, false, ""},

		"a lane less": {func(s, _ *Set) { delete(s.byName, lane(s, "a", "x").LaneName) }, false, "neither in memory"},
		"a lane more": {func(s, again *Set) { delete(again.byName, lane(again, "a", "x").LaneName) }, false, "memory counts 2"},
		"the count":   {func(s, _ *Set) { lane(s, "a", "x").count++ }, false, "memory counts 3"},
		"both counts": {func(s, again *Set) { lane(s, "a", "x").count++; lane(again, "a", "x").count++ }, false, "do not match 2 rows"},
		"no own row":  {func(s, _ *Set) { lane(s, "a", "x").inRow.Seq++ }, false, "has no row of its own"},
		"a head":      {func(s, _ *Set) { lane(s, "a", "x").head[0].ReadyAt++ }, false, "do not match 2 rows"},
		"behind head": {func(s, _ *Set) { l := lane(s, "a", "x"); l.head = l.head[:1] }, false, "do not match 2 rows"},
		"cold head":   {func(s, _ *Set) { s.cold.heads[s.cold.byKey["b"]][1].ReadyAt++ }, false, "do not match 3 rows"},

		"no flow":     {func(s, _ *Set) { delete(s.flows, "a") }, false, `nothing of key "a"`},
		"a flow more": {func(_, again *Set) { delete(again.flows, "a") }, false, `flow "a": memory`},
		"what runs":   {func(s, _ *Set) { s.flows["a"].Running++ }, false, `flow "a": memory`},
		"claims":      {func(s, _ *Set) { s.flows["a"].Use.Add(task.ID{1}, &schema.Exec{}, false) }, false, `flow "a": memory`},
		"claims by name": {func(s, again *Set) {
			s.flows["a"].Use.Named = []task.ID{{1}}
			again.flows["a"].Use.Add(task.ID{1}, &schema.Exec{}, false)
		}, false, `flow "a": memory`},
		"a hold":          {func(s, _ *Set) { s.flows["a"].Held = HeldByRate }, false, `flow "a": memory`},
		"lanes of a flow": {func(s, _ *Set) { s.flows["a"].lanes++ }, false, `flow "a": memory`},
		"an idle flow": {func(s, again *Set) {
			for _, of := range []*Set{s, again} {
				of.Flow("f", 0)
			}
		}, false, `flow "f": memory`},
		"a flow out of place": {func(s, _ *Set) { s.flows["a"].place[1] = -1 }, false, `flow "a" is at place -1`},
		"a held flow in place": {func(s, again *Set) { s.flows["a"].Held, again.flows["a"].Held = HeldByRate, HeldByRate }, false,
			`flow "a" is at place`},
		"a flow without lanes":      {func(s, _ *Set) { s.flows["a"].place[2] = 0 }, false, `flow "a" is at place 0`},
		"a flow at another's place": {func(s, _ *Set) { s.flows["a"].place[1] = s.flows["d"].place[1] }, false, `is at place`},
		"a lane not in its flow":    {func(s, _ *Set) { lane(s, "a", "x").own = -1 }, false, "is at place -1 of its flow"},
		"a lane at another's place": {func(s, _ *Set) { lane(s, "a", "x").own = lane(s, "a", "z").own }, false, "of its flow"},
		"a held lane in its flow":   {func(s, _ *Set) { lane(s, "a", "y").own = 0 }, false, "is at place 0 of its flow"},
		"a lane not of its type":    {func(s, _ *Set) { lane(s, "a", "x").sameType = -1 }, false, "is at place -1 of its type"},
		"a lane at the place of another of its type": {func(s, _ *Set) {
			lane(s, "a", "x").sameType = lane(s, "d", "x").sameType
		}, false, "of its type"},
		"the order of flows":  {func(s, _ *Set) { s.order[1].items[0].rank-- }, false, "flows of priority 1"},
		"the order of a type": {func(s, _ *Set) { s.byType[1]["x"].items[0].rank-- }, false, `lanes of type "x" are out of order`},

		"a cold lane with a flow": {func(s, again *Set) { s.flows["b"], again.flows["b"] = s.flows["a"], s.flows["a"] },
			false, "is not alone"},
		"a cold lane twice": {func(s, _ *Set) { c := *s.cold.byKey["b"]; c.of.lanes.add(&c) }, false, "is not alone"},
		"a cold lane in no type": {func(s, _ *Set) { c := s.cold.byKey["e"]; c.of.lanes.drop(c); c.of.tasks-- }, false,
			"2 cold lanes lie among their types, 3"},
		"an old account":             {func(s, _ *Set) { s.cold.byKey["b"].period-- }, false, "runs by account"},
		"tasks of a cold type":       {func(s, _ *Set) { s.cold.byType[1]["x"].tasks++ }, false, "cold type"},
		"a cold type held":           {func(s, _ *Set) { s.cold.byType[1]["x"].held = true }, false, "cold type"},
		"a cold type let run":        {func(s, _ *Set) { s.cold.byType[1]["y"].place = 0 }, false, "cold type"},
		"a start":                    {func(s, _ *Set) { s.cold.byType[1]["x"].start++ }, false, "cold type"},
		"an empty cold type":         {func(s, _ *Set) { s.cold.byType[2]["x"] = &coldType{place: -1} }, false, "cold type"},
		"the place of a cold lane":   {func(s, _ *Set) { s.cold.byKey["b"].place = 1 }, false, "cold type"},
		"the order of cold types":    {func(s, _ *Set) { s.cold.order[1].items[0].rank-- }, false, "cold types of priority 1"},
		"heads that are not counted": {func(s, _ *Set) { s.cold.ahead++ }, false, "3 tasks of cold lanes are remembered, 4 by count"},
		"too many heads":             {func(*Set, *Set) { Bounds.Heads = 2 }, false, "at most 2"},
		"too long a head":            {func(*Set, *Set) { Bounds.Head = 2 }, false, "are remembered of a lane"},
		"the head of another lane": {func(s, _ *Set) {
			c := *s.cold.byKey["b"]
			s.cold.heads = map[*coldLane][]schema.ReadyTask{&c: s.cold.heads[s.cold.byKey["b"]]}
		}, false, "are remembered of a lane"},
		"a head of one task": {func(s, _ *Set) { c := s.cold.byKey["b"]; s.cold.heads[c] = s.cold.heads[c][:1] }, false,
			"are remembered of a lane"},
		"a cold lane without a type":   {func(s, _ *Set) { s.cold.drop(s.cold.byKey["c"]) }, false, "neither in memory"},
		"released, and all is read":    {func(s, _ *Set) { release(s, "x") }, false, "released type"},
		"released":                     {func(s, _ *Set) { release(s, "x") }, true, ""},
		"tasks of a released type":     {func(s, _ *Set) { release(s, "x").tasks++ }, true, "released type"},
		"a released type in order":     {func(s, _ *Set) { release(s, "x").place = 0 }, true, "released type"},
		"the place of a released lane": {func(s, _ *Set) { release(s, "x").lanes.items[0].of.place = 1 }, true, "released type"},
		"an empty released type":       {func(s, _ *Set) { s.cold.released[1] = []*coldType{{place: -1}} }, true, "released type"},
		"a released lane of another":   {func(s, _ *Set) { t := *release(s, "x"); s.cold.byKey["b"].of = &t }, true, "released lane"},
		"a released lane with a flow": {func(s, again *Set) {
			release(s, "x")
			s.flows["b"], again.flows["b"] = s.flows["a"],
				s.flows["a"]
		},
			true, "released lane"},
		"a type held":                   {func(s, _ *Set) { s.held["w"] = true }, false, "memory holds"},
		"no types watched":              {func(s, _ *Set) { s.ofType = nil }, false, "memory holds"},
		"a trial less":                  {func(s, _ *Set) { delete(s.trials, "z") }, false, "is at place"},
		"a trial more":                  {func(s, again *Set) { delete(again.trials, "z") }, false, `trial of type "z"`},
		"a trial that shows nothing":    {func(_, again *Set) { again.trials["z"] = nil }, false, `trial of type "z"`},
		"a trial of nothing":            {func(s, again *Set) { again.trials["w"] = nil }, false, "1 trials, by the rows 2"},
		"a lane at another place":       {func(s, _ *Set) { lane(s, "a", "x").among = 7 }, false, "not at 7"},
		"a lane that is not in a type":  {func(s, _ *Set) { s.unindex(lane(s, "a", "x")) }, false, "lanes lie among their types"},
		"a lane among those of another": {func(s, _ *Set) { s.ofType["w"] = s.ofType["z"]; delete(s.ofType, "z") }, false, `of type "w"`},
	} {
		t.Run(name, func(t *testing.T) {
			defer func(was int, heads int) { Bounds.Head, Bounds.Heads = was, heads }(Bounds.Head, Bounds.Heads)
			w := newListed(t, 2)
			w.round(func(r *Round) {
				w.held["y"], w.held["z"], w.tried["z"] = true, true, true
				w.set.SetType(r, "y", true, false)
				w.set.SetType(r, "z", true, true)
				for _, in := range [][2]string{{"", "x"}, {"a", "x"}, {"a", "x"}, {"d", "x"}, {"a", "y"}, {"a", "z"},
					{"b", "x"}, {"b", "x"}, {"b", "x"}, {"c", "y"}, {"e", "x"}} {
					w.enterNew(r, task.Normal, in[0], in[1])
				}
			})
			w.round(func(r *Round) {
				again := New("ns", "q", w)
				w.open(r, again)
				w.readAll(r, again)
				c.spoil(w.set, again)
				err := errors.Join(w.set.Verify(r.tx, again, c.reading), w.set.VerifyTypes(again, true))
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("Verify = %v, want %q", err, c.want)
				}
			})
		})
	}
}
