package cron

import (
	"fmt"
	"sync"
	"time"
)

// zones caches loaded time zones: a few hundred at most.
var zones sync.Map // name → *time.Location

// location returns a time zone. "Local" is rejected: it would mean another place on each node.
func location(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	place, err := time.LoadLocation(name)
	if err != nil || name == "Local" || len(name) > MaxExpression {
		return nil, fmt.Errorf("%q is not the name of an IANA time zone such as Europe/Berlin", name)
	}
	zones.Store(name, place)
	return place, nil
}

// CheckZone rejects an unknown time zone.
func CheckZone(name string) error {
	_, err := location(name)
	return err
}
