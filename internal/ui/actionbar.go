package ui

import "github.com/pawlq/pawl/admin"

// button links to a form or a page.
type button struct {
	Label, URL string
	Needs      string // the right that the API requires; "": operate, or observe for a page
	Page       bool   // it links to a page rather than a form, which opens on top of this page
}

// actionBar holds the actions on the subject of a page. At most one of them is the main one. Harmful actions are in a menu, below the rest. In a
// narrow window the menu holds all but the main one.
type actionBar struct {
	Main         *button
	Beside       []button // next to the main one
	More, Danger []button // in the menu
}

// Empty reports whether the page offers no actions.
func (a actionBar) Empty() bool { return a.Main == nil && !a.HasMenu() }

// HasMenu reports whether there is anything for a menu, if only in a narrow window.
func (a actionBar) HasMenu() bool { return len(a.Beside)+len(a.More)+len(a.Danger) > 0 }

// Narrow reports whether the menu is needed only in narrow windows.
func (a actionBar) Narrow() bool { return len(a.More)+len(a.Danger) == 0 }

// MenuNeeds returns the right without which the menu would be empty; "": it is never empty, or several rights fill it.
func (a actionBar) MenuNeeds() string {
	needs := map[string]bool{}
	for _, list := range [][]button{a.Beside, a.More, a.Danger} {
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
func (b button) Right() string {
	if b.Needs == "" && !b.Page {
		return "operate"
	}
	return b.Needs
}

// asks returns a button for the form at a path, given in parts.
func asks(label string, path ...any) button {
	return button{Label: label, URL: addressOf(baseMark, path)}
}

// needing returns the button for visitors with another right than operate.
func (b button) needing(right string) button {
	b.Needs = right
	return b
}

// Actions returns the actions on a worker.
func (w workerView) Actions() (a actionBar) {
	switch resume := asks("Resume…", "workers", w.ID, "resume"); {
	case w.Lost():
	case w.Quiet != nil:
		a.Main = &resume
	default:
		a.Beside = []button{asks("Quiet…", "workers", w.ID, "quiet")}
	}
	return a
}

// Actions returns the actions on a group.
func (g groupView) Actions() (a actionBar) {
	if g.Open {
		a.Beside = []button{asks("Close…", "groups", g.ID, "close").needing("produce")}
	}
	if g.State == "running" {
		a.Danger = []button{asks("Cancel…", "groups", g.ID, "cancel")}
	}
	return a
}

// Actions returns the actions on an operation.
func (o operationView) Actions() (a actionBar) {
	switch resume := asks("Resume…", "operations", o.ID, "resume"); o.State {
	case admin.OperationRunning:
		a.Beside = []button{asks("Pause…", "operations", o.ID, "pause")}
	case admin.OperationPaused:
		a.Main = &resume
	}
	if !o.State.Ended() {
		a.Danger = []button{asks("Abort…", "operations", o.ID, "abort")}
	}
	return a
}

// Actions returns the actions on a schedule.
func (s scheduleView) Actions() actionBar {
	edit := asks("Edit…", "schedules", s.Name, "edit").needing("operate")
	edit.Page = true // the form is long
	trigger, resume := asks("Trigger…", "schedules", s.Name, "trigger"), asks("Resume…", "schedules", s.Name, "resume")
	a := actionBar{Main: &trigger, Beside: []button{asks("Pause…", "schedules", s.Name, "pause"), edit}, Danger: []button{asks("Delete…", "schedules", s.Name, "delete")}}
	if s.Pause != nil {
		a.Main, a.Beside[0] = &resume, trigger
	}
	return a
}

// Actions returns the actions on a webhook.
func (w webhookView) Actions() actionBar {
	test, resume := asks("Test…", "webhooks", w.Name, "test"), asks("Resume…", "webhooks", w.Name, "resume")
	a := actionBar{Main: &test, Beside: []button{asks("Pause…", "webhooks", w.Name, "pause"), asks("Edit…", "webhooks", w.Name, "edit").needing("admin")},
		More: []button{asks("Rotate secret…", "webhooks", w.Name, "rotate").needing("admin")}, Danger: []button{asks("Remove…", "webhooks", w.Name, "remove").needing("admin")}}
	if w.Paused || w.DisabledReason != "" {
		a.Main, a.Beside[0] = &resume, test
	}
	return a
}

// Actions returns the actions on all dead letters of a page.
func (d deadView) Actions() (a actionBar) {
	if d.Total > 0 {
		a.Main = &button{Label: "Replay all…", URL: d.All.Replay}
		a.Beside = []button{{Label: "List", URL: d.All.Find, Page: true}}
		a.Danger = []button{{Label: "Discard all…", URL: d.All.Discard}}
	}
	a.Beside = append(a.Beside, button{Label: "Archive", URL: addressOf(baseMark, []any{"archive"}), Page: true})
	return a
}
