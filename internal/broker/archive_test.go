package broker

import (
	"reflect"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Everything about a dead letter is archived: of a task of which everything is set, no field of the record is empty,
// except for the times when a task is due, which only follow-up tasks have.
func TestEverythingIsArchived(t *testing.T) {
	v := &View{Envelope: &schema.Envelope{}, Exec: &schema.Exec{}}
	fill(reflect.ValueOf(v).Elem())
	v.Exec.State, v.Exec.CreatedAt, v.Exec.ExpiresAt = task.Dead, 1, 2
	v.Exec.Unique.States = task.StatesOf(task.Ready)
	v.Exec.Retention = new(time.Hour)
	next := task.Spec{Type: "next", Queue: "q", Delay: time.Hour, Then: []task.Spec{{Type: "last", RunAt: time.Unix(5, 0)}}}
	v.Then = []schema.Follower{{Spec: task.EncodeSpec(&next)}, {Spec: []byte{0xff}}}
	r := recordOf(v)
	r.Cause, r.ArchivedAt = causeDiscard, time.Unix(1, 0)
	if len(r.Then) != 1 || r.Then[0].Type != "next" || time.Duration(r.Then[0].Delay) != time.Hour || len(r.Then[0].Then) != 1 ||
		!r.Then[0].Then[0].RunAt.Equal(time.Unix(5, 0)) {
		t.Errorf("the follow-up tasks are archived as %+v", r.Then)
	}
	r.Delay, r.RunAt, r.Then = 1, time.Unix(1, 0), nil // a dead letter itself was due long ago
	report := func(path string) {
		if path != ".Task.Then" {
			t.Errorf("the record has no %s", path)
		}
	}
	missing("", reflect.ValueOf(r), report)
}

// fill sets all fields.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		switch {
		case v.CanInt():
			v.SetInt(1)
		case v.CanUint():
			v.SetUint(1)
		case v.CanFloat():
			v.SetFloat(1)
		}
	}
}

// missing reports the fields that are empty.
func missing(path string, v reflect.Value, report func(path string)) {
	switch {
	case v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0:
		report(path)
	case v.Kind() == reflect.Pointer:
		missing(path, v.Elem(), report)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		missing(path, v.Index(0), report)
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			missing(path+"."+v.Type().Field(i).Name, v.Field(i), report)
		}
	}
}
