package humanize

// Other is the name under which figures aggregate everything that they don't count separately.
const Other = "_other"

// Named returns a name from the figures, or "other queues" (if such things are called queues) for Other.
func Named(name, things string) string {
	if name == Other {
		return "other " + things
	}
	return name
}
