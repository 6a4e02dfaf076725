package apijson

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// CheckJSON returns an error unless b is one JSON value in UTF-8.
func CheckJSON(b []byte) error {
	switch {
	case !utf8.Valid(b):
		return errors.New("it is not UTF-8")
	case !jsontext.Value(b).IsValid(asWritten...):
		return errors.New(whyInvalid(b))
	case deeper(b, maxPayloadDepth):
		return fmt.Errorf("it is nested deeper than %d", maxPayloadDepth)
	}
	return nil
}

// whyInvalid says what keeps b from being one JSON value.
func whyInvalid(b []byte) string {
	d := jsontext.NewDecoder(bytes.NewBuffer(b), asWritten...)
	_, err := d.ReadValue()
	if err == nil {
		_, err = d.ReadValue()
	}
	if err == nil {
		return fmt.Sprintf("another value follows before byte %d", d.InputOffset())
	}
	return syntaxText(err)
}

// deeper reports whether valid JSON is nested more deeply than depth.
func deeper(b []byte, depth int) bool {
	if bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) <= depth {
		return false
	}
	for d := jsontext.NewDecoder(bytes.NewBuffer(b), asWritten...); d.StackDepth() <= depth; {
		if _, err := d.ReadToken(); err != nil {
			return false
		}
	}
	return true
}
