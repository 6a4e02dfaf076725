package format

import "testing"

// TestBidiControlsAreVisible: characters that change the direction of a text are visible, and are kept in values that are sent back.
func TestBidiControlsAreVisible(t *testing.T) {
	for _, c := range []struct{ page, want string }{
		{"<td>refund.charge</td>", "<td>refund.charge</td>"},
		{"<td title=\"a\u202eb\">refund\u202eegrahc.</td>",
			"<td title=\"a\u202eb\">refund<i class=\"turn\" data-c=\"U+202E\">\u202e</i>egrahc.</td>"},
		{"\u2066a<b>\u061c\u200f</b>", "<i class=\"turn\" data-c=\"U+2066\">\u2066</i>a<b><i class=\"turn\" " +
			"data-c=\"U+061C\">\u061c</i><i class=\"turn\" data-c=\"U+200F\">\u200f</i></b>"},
		{"<title>a\u202e · Pawl</title>\u202e", "<title>a[U+202E] · Pawl</title><i class=\"turn\" data-c=\"U+202E\">\u202e</i>"},
		{"<textarea name=\"x\">\u202e</textarea><option value=\"\u202e\">\u202e</option>",
			"<textarea name=\"x\">\u202e</textarea><option value=\"\u202e\">[U+202E]</option>"},
		{"<p>\u202e", "<p><i class=\"turn\" data-c=\"U+202E\">\u202e</i>"},
	} {
		if got := string(ShowBidiControls([]byte(c.page))); got != c.want {
			t.Errorf("ShowBidiControls(%q) =\n%q, want\n%q", c.page, got, c.want)
		}
	}
}
