package markers

import "github.com/pawlq/pawl/internal/verb"

// Verbs are the calls on markers.
var Verbs verb.Table[*Markers]

// A marker that was removed can't be removed again, so Remove is not repeated.
var (
	Add    = verb.New(&Verbs, verb.SystemRule("add-marker"), (*Markers).Add)
	End    = verb.New(&Verbs, verb.SystemRule("end-marker"), (*Markers).End)
	Remove = verb.NewVoid(&Verbs, verb.Rule{Name: "remove-marker", Where: verb.System}, (*Markers).Remove)
	List   = verb.New(&Verbs, verb.SystemRule("markers"), (*Markers).List)
)
