package archived

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Everything about a dead letter is archived: of a task of which everything is set, no field of the archived one is empty.
func TestEverythingIsArchived(t *testing.T) {
	v := &query.View{Envelope: &schema.Envelope{}, Exec: &schema.Exec{}}
	fill(reflect.ValueOf(v).Elem())
	v.Exec.State, v.Exec.CreatedAt, v.Exec.ExpiresAt = task.Dead, 1, 2
	v.Exec.Unique.States = task.StatesOf(task.Ready)
	missing("", reflect.ValueOf(New(v, "discard", time.Unix(1, 0))), func(path string) { t.Errorf("the archived task has no %s", path) })
}

// A task fits into a page, even if it was attempted often, and regardless of how its failures are written in JSON: the newest attempts
// stay.
func TestLineFitsIntoPage(t *testing.T) {
	v := &query.View{Envelope: &schema.Envelope{}, Exec: &schema.Exec{}}
	fill(reflect.ValueOf(v).Elem())
	v.Attempts = nil
	for i := range 400 {
		v.Attempts = append(v.Attempts, &schema.Attempt{Number: i, Failure: schema.Failure{Message: strings.Repeat("\x01", task.MaxErrorText), Stack: strings.Repeat("<", task.MaxErrorText)}})
	}
	for _, c := range []struct{ attempts, most, least int }{{1, 1, 1}, {100, 100, 100}, {400, 130, 60}} {
		of := *v
		of.Attempts = v.Attempts[400-c.attempts:]
		line, err := Line(&of, "discard", time.Unix(1, 0))
		if err != nil || len(line) > MaxPageBytes {
			t.Fatalf("a task with %d attempts has a line of %d bytes, %v", c.attempts, len(line), err)
		}
		back, err := decode("there", line)
		if err != nil || len(back.Attempts) > c.most || len(back.Attempts) < c.least || back.Attempts[len(back.Attempts)-1].Attempt != 399 || back.ID != v.ID.String() {
			t.Errorf("of %d attempts %d are archived, %v, want the newest %d to %d", c.attempts, len(back.Attempts), err, c.least, c.most)
		}
	}
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
