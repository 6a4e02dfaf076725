package ui

import "github.com/pawlq/pawl/admin"

// button leads to a form, or to a page.
type button struct {
	Label, URL string
	Needs      string // the right that the API asks for; "": to operate, or to observe for a page
	Page       bool   // it leads to a page: no form opens over this one
}

// actionBar is what can be done with the subject of a page. One action at most is the main one. What does harm is in a menu, below the rest. In a
// narrow window all but the main one are there.
type actionBar struct {
	Main         *button
	Beside       []button // the main one
	More, Danger []button // in the menu
}

// Empty tells of a page that offers nothing.
func (a actionBar) Empty() bool { return a.Main == nil && !a.HasMenu() }

// HasMenu tells whether there is something to put into a menu, if only in a narrow window.
func (a actionBar) HasMenu() bool { return len(a.Beside)+len(a.More)+len(a.Danger) > 0 }

// Narrow tells of a menu that wide windows don't need.
func (a actionBar) Narrow() bool { return len(a.More)+len(a.Danger) == 0 }

// MenuNeeds is the right without which nothing would be in the menu; "": there is always something, or several rights lead to it.
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

// Right is what the API asks for; "": to observe.
func (b button) Right() string {
	if b.Needs == "" && !b.Page {
		return "operate"
	}
	return b.Needs
}

// asks is the button of a form, by the parts of its path.
func asks(label string, path ...any) button {
	return button{Label: label, URL: addressOf(baseMark, path)}
}

// needing is the button for who has another right than to operate.
func (b button) needing(right string) button {
	b.Needs = right
	return b
}

// Actions are what can be done with a worker.
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

// Actions are what can be done with a group.
func (g groupView) Actions() (a actionBar) {
	if g.Open {
		a.Beside = []button{asks("Close…", "groups", g.ID, "close").needing("produce")}
	}
	if g.State == "running" {
		a.Danger = []button{asks("Cancel…", "groups", g.ID, "cancel")}
	}
	return a
}

// Actions are what can be done with an operation.
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

// Actions are what can be done with a schedule.
func (s scheduleView) Actions() actionBar {
	edit := asks("Edit…", "schedules", s.Name, "edit").needing("operate")
	edit.Page = true // it is long
	trigger, resume := asks("Trigger…", "schedules", s.Name, "trigger"), asks("Resume…", "schedules", s.Name, "resume")
	a := actionBar{Main: &trigger, Beside: []button{asks("Pause…", "schedules", s.Name, "pause"), edit}, Danger: []button{asks("Delete…", "schedules", s.Name, "delete")}}
	if s.Pause != nil {
		a.Main, a.Beside[0] = &resume, trigger
	}
	return a
}

// Actions are what can be done with a webhook.
func (w webhookView) Actions() actionBar {
	test, resume := asks("Test…", "webhooks", w.Name, "test"), asks("Resume…", "webhooks", w.Name, "resume")
	a := actionBar{Main: &test, Beside: []button{asks("Pause…", "webhooks", w.Name, "pause"), asks("Edit…", "webhooks", w.Name, "edit").needing("admin")},
		More: []button{asks("Rotate secret…", "webhooks", w.Name, "rotate").needing("admin")}, Danger: []button{asks("Remove…", "webhooks", w.Name, "remove").needing("admin")}}
	if w.Paused || w.DisabledReason != "" {
		a.Main, a.Beside[0] = &resume, test
	}
	return a
}

// Actions are what can be done with all dead letters of a page.
func (d deadView) Actions() (a actionBar) {
	if d.Total > 0 {
		a.Main = &button{Label: "Replay all…", URL: d.All.Replay}
		a.Beside = []button{{Label: "List", URL: d.All.Find, Page: true}}
		a.Danger = []button{{Label: "Discard all…", URL: d.All.Discard}}
	}
	a.Beside = append(a.Beside, button{Label: "Archive", URL: addressOf(baseMark, []any{"archive"}), Page: true})
	return a
}
