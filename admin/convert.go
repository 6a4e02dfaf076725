package admin

import (
	"encoding/json"
	"fmt"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
)

// each converts the elements of a list; none are nil.
func each[P, T any](list []P, of func(P) T) []T {
	var out []T
	for _, p := range list {
		out = append(out, of(p))
	}
	return out
}

// mapped converts the values of a map; none are nil.
func mapped[P, T any](m map[string]P, of func(P) T) map[string]T {
	var out map[string]T
	for key, p := range m {
		if out == nil {
			out = make(map[string]T, len(m))
		}
		out[key] = of(p)
	}
	return out
}

// words converts texts to words, or words to texts.
func words[To, From ~string](list []From) []To {
	return each(list, func(word From) To { return To(word) })
}

// present converts a message unless it is absent.
func present[P, T any](p *P, of func(*P) T) *T {
	if p == nil {
		return nil
	}
	return new(of(p))
}

// maybe converts a scalar unless it is absent.
func maybe[P, T any](p *P, of func(P) T) *T {
	if p == nil {
		return nil
	}
	return new(of(*p))
}

// sent is the message for a value unless that is nil.
func sent[T, P any](v *T, message func(T) *P) *P {
	if v == nil {
		return nil
	}
	return message(*v)
}

// given is the message for a value unless that is zero.
func given[T comparable, P any](v T, message func(T) *P) *P {
	var none T
	if v == none {
		return nil
	}
	return message(v)
}

// jsonOf returns nil for an empty text.
func jsonOf(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// wrap wraps the error of a call, if there is one, in a text.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// answer returns what a part of a response says, or the error of its call, wrapped in a text.
func answer[P, T any](of func(P) T, p P, err error, format string, args ...any) (*T, error) {
	if err != nil {
		return nil, wrap(err, format, args...)
	}
	return new(of(p)), nil
}

// pageOf is answer for a page of a list.
func pageOf[P, T any](of func(P) T, resp interface {
	GetItems() []P
	GetNextCursor() string
}, err error, format string, args ...any) (pawltype.Page[*T], error) {
	if err != nil {
		return pawltype.Page[*T]{}, wrap(err, format, args...)
	}
	return convert.Page(resp, func(p P) *T { return new(of(p)) }), nil
}
