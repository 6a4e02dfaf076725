package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/ui/web"
)

// TestReferenceHasEveryOperation: the reference lists every operation of the document, and has a page for it with the
// request, the response, and the objects that they consist of. All links have targets.
func TestReferenceHasEveryOperation(t *testing.T) {
	doc, err := apiReader(rest.OpenAPI)()
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(rest.OpenAPI(), &raw); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, g := range doc.Groups {
		for _, o := range g.Operations {
			listed[o.ID] = true
		}
	}
	for path, methods := range raw.Paths {
		for method, op := range methods {
			o := doc.operations[op.OperationID]
			if !listed[op.OperationID] || o == nil || o.Path != path || !strings.EqualFold(o.Method, method) || o.Summary == "" {
				t.Errorf("%s %s is described as %+v, listed: %v", method, path, o, listed[op.OperationID])
				continue
			}
			onPage := map[string]bool{"": true}
			for _, object := range o.Objects {
				onPage[object.Name] = true
			}
			refs := []string{o.Answer.Ref}
			if o.Request != nil {
				refs = append(refs, o.Request.Ref)
			}
			for _, f := range o.Parameters {
				refs = append(refs, f.Ref)
			}
			for _, object := range o.Objects {
				for _, f := range object.Fields {
					refs = append(refs, f.Ref)
				}
			}
			for _, ref := range refs {
				if !onPage[ref] {
					t.Errorf("%s: %s is linked, but not on the page", o.ID, ref)
				}
			}
		}
	}
	enqueue := doc.operations["enqueue"]
	if enqueue.Objects[0].Name != "TaskSpec" || enqueue.Objects[1].Name != "Enqueued" || enqueue.Answer.Status != "202" {
		t.Errorf("the operation enqueue is %+v", enqueue)
	}
	if want := "curl http://127.0.0.1:7295/api/v1/tasks \\\n  -d '{\"type\":\"mail.welcome\""; !strings.HasPrefix(enqueue.Request.Curl,
		want) {
		t.Errorf("the curl command for enqueue is %s, want %s…", enqueue.Request.Curl, want)
	}
	if put := doc.operations["putQueue"].Request.Curl; !strings.HasPrefix(put, "curl -X PUT ") {
		t.Error(put)
	}
	fields := fmt.Sprint(enqueue.Objects[1].Fields)
	if !strings.Contains(fields, "{task_id  uuid") {
		t.Errorf("the response fields of enqueue are %s, want a task_id", fields)
	}
}

// TestReferenceWithoutADocument: without a document, the page reports an error and does not panic.
func TestReferenceWithoutADocument(t *testing.T) {
	if _, err := apiReader(nil)(); err == nil {
		t.Error("apiReader without a document returned no error")
	}
	if _, err := apiReader(func() []byte { return []byte("{") })(); err == nil {
		t.Error("apiReader with an invalid document returned no error")
	}
	u := web.New(web.Config{}, sets(nil)...)
	w := httptest.NewRecorder()
	u.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/docs/api", nil))
	if w.Code < 400 {
		t.Errorf("the page without a document has status %d, want an error", w.Code)
	}
}
