package main

import (
	"fmt"
	"strings"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/pawltype"
)

// readThen parses follow-up tasks: each is an object as in the REST API, or @FILE.
func readThen(given []string) (opts []pawl.Option, err error) {
	for _, text := range given {
		var next pawlv1.TaskSpec
		if err := view.ReadObject("--then", text, &next); err != nil {
			return nil, err
		}
		item := view.Item(&next)
		opts = append(opts, pawl.Then(item.Args, item.Options...))
	}
	return opts, nil
}

// thenText summarizes what follows a schedule's task, in one line.
func thenText(then []admin.ScheduledTask) string {
	names := make([]string, len(then))
	for i := range then {
		names[i] = then[i].Type
		if rest := thenText(then[i].Then); rest != "" {
			names[i] += " then " + rest
		}
	}
	return strings.Join(names, ", ")
}

// parentText names what a task follows.
func parentText(p *pawltype.Parent) string {
	switch {
	case p == nil:
		return ""
	case p.GroupID != "":
		return "group " + p.GroupID
	}
	return p.TaskID
}

// followerText describes a follow-up task in one line.
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

// followerFields returns a task's follow-up tasks, one per line.
func followerFields(then []pawltype.Follower) (pairs []string) {
	for i := range then {
		pairs = append(pairs, "Then", followerText(&then[i]))
	}
	return pairs
}
