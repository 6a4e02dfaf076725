package humanize

// Other is what figures call all those together that they don't count apart.
const Other = "_other"

// Named is a name as figures have it, or "other queues", if such things are called queues, where they mean all others.
func Named(name, things string) string {
	if name == Other {
		return "other " + things
	}
	return name
}
