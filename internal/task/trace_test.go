package task

import (
	"maps"
	"strconv"
	"strings"
	"testing"
)

func TestWithTrace(t *testing.T) {
	trace := map[string]string{"traceparent": "00-1", "tracestate": "a=b", "other": "x"}
	many := map[string]string{}
	for i := range maxHeaders {
		many[strconv.Itoa(i)] = ""
	}
	large := map[string]string{"h": strings.Repeat("x", MaxHeaderBytes-5)}
	for name, c := range map[string]struct{ headers, of, want map[string]string }{
		"none":            {nil, trace, map[string]string{"traceparent": "00-1", "tracestate": "a=b"}},
		"others":          {map[string]string{"a": "1"}, trace, map[string]string{"a": "1", "traceparent": "00-1", "tracestate": "a=b"}},
		"no state":        {nil, map[string]string{"traceparent": "00-1"}, map[string]string{"traceparent": "00-1"}},
		"nothing to take": {nil, map[string]string{"tracestate": "a=b"}, nil},
		"its own":         {map[string]string{"traceparent": "bad"}, trace, map[string]string{"traceparent": "bad"}},
		"its own, empty":  {map[string]string{"traceparent": ""}, trace, map[string]string{"traceparent": ""}},
		"its own state":   {map[string]string{"tracestate": "c=d"}, trace, map[string]string{"tracestate": "c=d"}},
		"too many":        {many, trace, many},
		"too large":       {large, trace, large},
	} {
		before := maps.Clone(c.headers)
		if got := WithTrace(c.headers, c.of); !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		if !maps.Equal(before, c.headers) {
			t.Errorf("%s: the map was changed to %v", name, c.headers)
		}
	}
}
