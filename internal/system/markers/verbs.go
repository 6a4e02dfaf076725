package markers

import "github.com/pawlq/pawl/internal/verb"

// Verbs are the calls on markers.
var Verbs verb.Table[*Markers]

// A marker that was removed can't be removed again, so Remove is not repeated.
var (
	Add    = verb.New(&Verbs, verb.Rule{Name: "add-marker", Where: verb.System, Idempotent: true}, (*Markers).Add)
	End    = verb.New(&Verbs, verb.Rule{Name: "end-marker", Where: verb.System, Idempotent: true}, (*Markers).End)
	Remove = verb.NewVoid(&Verbs, verb.Rule{Name: "remove-marker", Where: verb.System}, (*Markers).Remove)
	List   = verb.New(&Verbs, verb.Rule{Name: "markers", Where: verb.System, Idempotent: true}, (*Markers).List)
)
