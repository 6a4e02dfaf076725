package main

import (
	"fmt"
	"strings"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

// readThen reads what is to follow a task: each is an object as in the REST API, or the name of a file with one behind an @.
func readThen(given []string) (opts []pawl.Option, err error) {
	for _, text := range given {
		var view scheduledTaskView
		if err := readObject("--then", text, &view); err != nil {
			return nil, err
		}
		item, err := view.item("then")
		if err != nil {
			return nil, usageError{err}
		}
		opts = append(opts, pawl.Then(item.Args, item.Options...))
	}
	return opts, nil
}

// thenText is what follows the task of a schedule, in one line.
func thenText(then []scheduledTaskView) string {
	names := make([]string, len(then))
	for i := range then {
		names[i] = then[i].Type
		if rest := thenText(then[i].Then); rest != "" {
			names[i] += " then " + rest
		}
	}
	return strings.Join(names, ", ")
}

// parentView and followerView are what a task follows, and what follows it.
type parentView struct {
	TaskID      string `json:"task_id,omitempty"`
	GroupID     string `json:"group_id,omitempty"`
	Result      any    `json:"result,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Omitted     bool   `json:"result_omitted,omitempty"`
}

type followerView struct {
	Type   string                 `json:"type"`
	Queue  string                 `json:"queue"`
	State  pawltype.FollowerState `json:"state"`
	TaskID string                 `json:"task_id,omitempty"`
	Reason string                 `json:"reason,omitempty"`
}

func viewParent(p *pawltype.Parent) *parentView {
	if p == nil {
		return nil
	}
	return &parentView{p.TaskID, p.GroupID, viewBytes(p.Result, p.ContentType), p.ContentType, p.Omitted}
}

func viewFollower(f *pawltype.Follower) *followerView {
	if f == nil {
		return nil
	}
	return &followerView{f.Type, f.Queue, f.State, f.TaskID, f.Reason}
}

func viewThen(then []pawltype.Follower) (views []followerView) {
	for i := range then {
		views = append(views, *viewFollower(&then[i]))
	}
	return views
}

// parentText is what a task follows.
func parentText(p *pawltype.Parent) string {
	switch {
	case p == nil:
		return ""
	case p.GroupID != "":
		return "group " + p.GroupID
	}
	return p.TaskID
}

// followerText is a task that follows another, in one line.
func followerText(f *pawltype.Follower) string {
	if f == nil {
		return ""
	}
	s := fmt.Sprintf("%s in %s: %s", f.Type, f.Queue, f.State)
	if f.TaskID != "" {
		s += " " + f.TaskID
	}
	if f.Reason != "" {
		s += " (" + f.Reason + ")"
	}
	return s
}

// followerFields are what follows a task, one in each line.
func followerFields(then []pawltype.Follower) (pairs []string) {
	for i := range then {
		pairs = append(pairs, "Then", followerText(&then[i]))
	}
	return pairs
}
