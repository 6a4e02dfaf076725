package sqs

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// named is a Core with queues by name.
type named struct {
	Core
	queues map[string]task.QueueConfig
}

func (c *named) Namespace(context.Context) string { return defaultNamespace }

func (c *named) Queue(_ context.Context, name string) (queues.Queue, bool, error) {
	config, ok := c.queues[name]
	return queues.Queue{Name: name, Config: config}, ok, nil
}

func (c *named) Queues(context.Context, string, string, int) (all []queues.Queue, err error) {
	for name, config := range c.queues {
		all = append(all, queues.Queue{Name: name, Config: config})
	}
	return all, nil
}

func (c *named) PutQueue(_ context.Context, name string, change func(*task.QueueConfig) error) error {
	config := c.queues[name]
	if err := change(&config); err != nil {
		return err
	}
	config.Version++
	c.queues[name] = config
	return nil
}

// Booleans may have capitals, and are stored without. An attribute that is given again in other words is the same.
func TestAttributesAreCompared(t *testing.T) {
	const policy = `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:a:b","maxReceiveCount":%s}`
	for _, c := range []struct {
		what       string
		has, given map[string]string
		want       string // of the second CreateQueue
	}{
		{"booleans", map[string]string{"FifoQueue": "True", "ContentBasedDeduplication": "TRUE", "SqsManagedSseEnabled": "False"},
			map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true", "SqsManagedSseEnabled": "FALSE"}, "<nil>"},
		{"another boolean", map[string]string{"FifoQueue": "True", "ContentBasedDeduplication": "True"},
			map[string]string{"FifoQueue": "True",
				"ContentBasedDeduplication": "False"}, "different value for attribute ContentBasedDeduplication"},
		{"no boolean", nil, map[string]string{"SqsManagedSseEnabled": "yes"}, "Invalid value for the parameter SqsManagedSseEnabled"},
		{"numbers", map[string]string{"DelaySeconds": "5"}, map[string]string{"DelaySeconds": "05"}, "<nil>"},
		{"other numbers", map[string]string{"DelaySeconds": "5"}, map[string]string{"DelaySeconds": "50"},
			"different value for attribute DelaySeconds"},
		{"a default that is not returned", map[string]string{reusePeriod: "300"}, map[string]string{reusePeriod: "300"}, "<nil>"},
		{"another period", map[string]string{reusePeriod: "300"}, map[string]string{reusePeriod: "301"}, "different value for attribute " +
			reusePeriod},
		{"a redrive policy", map[string]string{"RedrivePolicy": fmt.Sprintf(policy, "3")},
			map[string]string{"RedrivePolicy": ` {"maxReceiveCount":"3", "deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:a:b"}`},
			"<nil>"},
		{"another redrive policy", map[string]string{"RedrivePolicy": fmt.Sprintf(policy, "3")},
			map[string]string{"RedrivePolicy": fmt.Sprintf(policy, "4")}, "different value for attribute RedrivePolicy"},
		{"a policy", map[string]string{"Policy": `{"a":1,"b":[2]}`}, map[string]string{"Policy": `{"b": [2], "a": 1}`}, "<nil>"},
		{"another policy", map[string]string{"Policy": `{"a":1,"b":[2]}`}, map[string]string{"Policy": `{"a":1,"b":[3]}`},
			"different value for attribute Policy"},
		{"no policy", map[string]string{"Policy": ""}, map[string]string{"Policy": `{"a":1}`}, "different value for attribute Policy"},
		{"a key of one's own", map[string]string{ownKey: "k"}, map[string]string{ownKey: "k", managedKey: "false"}, "<nil>"},
		{"no key of one's own", map[string]string{ownKey: ""}, map[string]string{managedKey: "true"}, "<nil>"},
		{"two encryptions", nil, map[string]string{ownKey: "k", managedKey: "True"},
			"You can use one type of server-side encryption (SSE) at one time."},
		{"a target that is no ARN", nil, map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"dummy","maxReceiveCount":3}`},
			"Reason: Invalid value for deadLetterTargetArn."},
		{"a target that is missing", nil, map[string]string{
			"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:gone",` +
				`"maxReceiveCount":3}`}, "Reason: Dead letter target does not exist."},
		{"who may redrive", map[string]string{"RedriveAllowPolicy": `{"redrivePermission":"denyAll"}`},
			map[string]string{"RedriveAllowPolicy": `{ "redrivePermission" : "denyAll" }`}, "<nil>"},
	} {
		core := &named{queues: map[string]task.QueueConfig{"a:b": {Version: 1}}}
		name := "q"
		if c.has["FifoQueue"] != "" {
			name = "q.fifo"
		}
		create := func(attributes map[string]string) string {
			x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil),
				in: &wire.Input{QueueName: name, Attributes: attributes}}
			return fmt.Sprint(createQueue(x))
		}
		if got := create(c.has); got != "<nil>" {
			t.Errorf("%s: %s", c.what, got)
			continue
		}
		if got := create(c.given); got != c.want && !strings.Contains(got, c.want) {
			t.Errorf("%s: the second call returns %s, want %s", c.what, got, c.want)
		}
		for note, v := range core.queues[name].Annotations {
			if v != strings.ToLower(v) && !strings.Contains(v, "{") {
				t.Errorf("%s: stored is %s=%s", c.what, note, v)
			}
		}
		if _, ok := core.queues[name].Annotations[noteAttribute+reusePeriod]; ok {
			t.Errorf("%s: the default period is stored", c.what)
		}
	}
}

// A change of attributes takes the same words as a new queue.
func TestAttributesAreSet(t *testing.T) {
	core := &named{queues: map[string]task.QueueConfig{"q": {Version: 1, Annotations: map[string]string{noteAttribute +
		reusePeriod: "600"}}}}
	x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil),
		in: &wire.Input{QueueURL: "q", Attributes: map[string]string{"SqsManagedSseEnabled": "False", reusePeriod: "300"}}}
	if err := setAttributes(x); err != nil {
		t.Fatal(err)
	}
	got := maps.Clone(core.queues["q"].Annotations)
	delete(got, noteModified)
	if want := map[string]string{noteAttribute + "SqsManagedSseEnabled": "false"}; !maps.Equal(got, want) {
		t.Errorf("stored are %v, want %v", got, want)
	}
}

// A tag is text: others would all look the same in a list.
func TestTagsAreText(t *testing.T) {
	for tag, want := range map[string]bool{"a": true, "é": true, "": false, "\xff": false, "\x01": false} {
		if err := checkTags("q", map[string]string{"k" + tag: "v"}, 0); (err == nil) != (want || tag == "") {
			t.Errorf("the tag %q: %v", "k"+tag, err)
		}
		if err := checkTags("q", map[string]string{"k": "v" + tag}, 0); (err == nil) != (want || tag == "") {
			t.Errorf("the value %q: %v", "v"+tag, err)
		}
	}
}
