package web

// Button links to a form or a page.
type Button struct {
	Label, URL string
	Needs      string // the right that the API requires; "": operate, or observe for a page
	Page       bool   // it links to a page rather than a form, which opens on top of this page
}

// ActionBar holds the actions on the subject of a page. At most one of them is the main one. Harmful actions are in a
// menu, below the rest. In a narrow window the menu holds all but the main one.
type ActionBar struct {
	Main         *Button
	Beside       []Button // next to the main one
	More, Danger []Button // in the menu
}

// Empty reports whether the page offers no actions.
func (a ActionBar) Empty() bool { return a.Main == nil && !a.HasMenu() }

// HasMenu reports whether there is anything for a menu, if only in a narrow window.
func (a ActionBar) HasMenu() bool { return len(a.Beside)+len(a.More)+len(a.Danger) > 0 }

// Narrow reports whether the menu is needed only in narrow windows.
func (a ActionBar) Narrow() bool { return len(a.More)+len(a.Danger) == 0 }

// MenuNeeds returns the right without which the menu would be empty; "": it is never empty, or several rights fill it.
func (a ActionBar) MenuNeeds() string {
	needs := map[string]bool{}
	for _, list := range [][]Button{a.Beside, a.More, a.Danger} {
		for _, b := range list {
			needs[b.Right()] = true
		}
	}
	switch {
	case needs[""] || needs["produce"]:
		return ""
	case needs["operate"]:
		return "operate"
	case needs["cluster"]:
		return "cluster"
	}
	return "admin"
}

// Right is the right that the API requires; "": observe.
func (b Button) Right() string {
	if b.Needs == "" && !b.Page {
		return "operate"
	}
	return b.Needs
}

// Ask returns a button for the form at a path, given in parts.
func Ask(label string, path ...any) Button {
	return Button{Label: label, URL: addressOf(baseMark, path)}
}

// Needing returns the button for visitors with another right than operate.
func (b Button) Needing(right string) Button {
	b.Needs = right
	return b
}

// AsPage returns the button as a link to a page, or to a form that is too long to open on top of this page.
func (b Button) AsPage() Button {
	b.Page = true
	return b
}
