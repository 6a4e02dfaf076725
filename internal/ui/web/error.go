package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// errorView is an error page.
type errorView struct {
	format.Problem
	Pages   []navItem // that the visitor may see instead
	Cluster []string  // problems of the cluster, which may be the cause
}

// titleOf returns the title of an error page.
func titleOf(status int) string {
	switch status {
	case http.StatusNotFound:
		return "Not found"
	case http.StatusForbidden:
		return "Not allowed"
	case http.StatusUnauthorized:
		return "Log in"
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "Not available"
	case http.StatusInternalServerError:
		return "Internal error"
	}
	return "Invalid request"
}

// clusterProblems returns the cluster's problems, if the visitor may see them.
func clusterProblems(req *Request) []string {
	ctx, cancel := context.WithTimeout(req.HTTP.Context(), troubleTime)
	defer cancel()
	if req.Client == nil {
		return nil
	}
	c, err := req.Admin().Cluster().Status(ctx)
	if err != nil {
		return nil
	}
	return c.Problems
}

// troubleTime bounds how long a page that is already late waits for them.
const troubleTime = 3 * time.Second

// fail shows an error page.
func (s *Server) fail(req *Request, err error) {
	p := errorView{Problem: format.ProblemOf(err)}
	if p.Code == "internal" {
		s.log.Error("a page of the UI could not be rendered", "path", req.HTTP.URL.Path, "error", err)
	}
	p.Title = titleOf(p.Status)
	part, data := "live", any(&p)
	if !req.partial() {
		req.Identity()
		if errors.Is(err, pawltype.ErrUnavailable) {
			p.Cluster = clusterProblems(req)
		} else {
			p.Pages = req.menu()
		}
		part, data = "layout", s.frame(req, &Screen{Title: p.Title, Data: &p, NoRefresh: req.left})
	}
	if err := req.Render(p.Status, "error", part, data); err != nil {
		s.log.Error("a page of the UI could not be rendered", "path", req.HTTP.URL.Path, "error", err)
		http.Error(req.Writer, "internal error", http.StatusInternalServerError)
	}
}
