package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// The tables of pawl top.

func (v *model) tabs() (l line) {
	counts := [tabCount]string{text.Grouped(int64(len(v.last.queues))), text.Grouped(int64(len(v.last.workers))),
		text.Grouped(int64(len(v.last.failures)))}
	if v.last.moreQueues {
		counts[tabQueues] = fmt.Sprintf("first %s of %s", counts[tabQueues],
			text.Grouped(max(v.last.sums.queues, int64(len(v.last.queues)+1))))
	}
	if v.last.moreWorkers {
		counts[tabWorkers] = "first " + counts[tabWorkers]
	}
	for i, name := range tabNames {
		is := styleDim
		if tab(i) == v.tab {
			is = styleSelected
		}
		l = append(l, piece{fmt.Sprintf(" %d %s %s ", i+1, name, counts[i]), is}, piece{" ", stylePlain})
	}
	return l
}

// table renders rows from the first visible one, in columns as wide as their content. On a narrow screen it drops the least useful columns.
func table[T any](v *model, width int, rows []T, columns []column[T], empty string) (lines []line) {
	if len(rows) == 0 {
		if v.last.at.IsZero() {
			empty = "waiting for the first answer"
		}
		return []line{{{empty, styleDim}}}
	}
	rows = slices.Clone(rows)
	by := &v.sorted[v.tab]
	*by = min(max(*by, 0), len(columns)-1)
	for columns[*by].order == nil {
		*by--
	}
	slices.SortStableFunc(rows, columns[*by].order)
	v.scroll(len(rows))
	seen := rows[v.top[v.tab]:min(v.top[v.tab]+v.rows, len(rows))]

	cells, widths, most := make([]line, len(seen)+1), make([]int, len(columns)), cellWidth(columns, width)
	for c, column := range columns {
		head := column.head
		if c == *by {
			head += "▾"
		}
		cells[0] = append(cells[0], piece{head, styleHead})
		for i, row := range seen {
			cell, l := column.show(row)
			cells[i+1] = append(cells[i+1], piece{text.Short(cell, most), l})
		}
		for _, row := range cells {
			widths[c] = max(widths[c], displaywidth.String(row[c].text))
		}
	}
	ranks := make([]int, len(columns))
	for c := range columns {
		if ranks[c] = columns[c].rank; c == *by {
			ranks[c] = 0
		}
	}
	keep := fitting(widths, ranks, width)
	left := make([]bool, len(columns))
	for c := range columns {
		left[c] = columns[c].left
	}
	for i, row := range cells {
		shown := lay(row, widths, left, keep, width)
		if i > 0 && v.top[v.tab]+i-1 == v.chosen[v.tab] {
			for c := range shown {
				shown[c].style = styleSelected
			}
		}
		lines = append(lines, shown)
	}
	return lines
}

// lay puts the cells of a row side by side.
func lay(row line, widths []int, left, keep []bool, room int) (shown line) {
	for c := range row {
		if !keep[c] {
			continue
		}
		p := piece{pad(row[c].text, widths[c], left[c]), row[c].style}
		if c == len(row)-1 { // the last cell is text, cut to the room left
			p.text = text.Short(row[c].text, max(room, 1))
		}
		room -= widths[c] + 2
		shown = append(shown, p)
	}
	return shown
}

// fitting returns which columns to show: as many as fit; those with the highest ranks are dropped first.
func fitting(widths, ranks []int, width int) []bool {
	keep, total := make([]bool, len(widths)), 0
	for c := range widths {
		keep[c], total = true, total+widths[c]+2
	}
	for total-2 > width {
		worst := -1
		for c := range keep {
			if keep[c] && ranks[c] > 0 && (worst < 0 || ranks[c] > ranks[worst]) {
				worst = c
			}
		}
		if worst < 0 {
			break
		}
		keep[worst], total = false, total-widths[worst]-2
	}
	return keep
}

// cellWidth returns the maximum width of a cell: the screen is divided equally among the names that are always shown and one more column.
func cellWidth[T any](columns []column[T], width int) int {
	parts := 1
	for _, c := range columns {
		if c.left && c.rank == 0 && c.order != nil {
			parts++
		}
	}
	return min(text.MaxCell, max(width/parts, 10))
}

// pad pads a cell to its column's width, with the gap to the next.
func pad(s string, width int, left bool) string {
	space := strings.Repeat(" ", max(width-displaywidth.String(s), 0))
	if left {
		return s + space + "  "
	}
	return space + s + "  "
}

// scroll keeps the selected row within the rows and visible.
func (v *model) scroll(rows int) {
	c, t := &v.chosen[v.tab], &v.top[v.tab]
	*c = min(max(*c, 0), rows-1)
	*t = min(*t, *c)
	*t = max(*t, *c-v.rows+1)
	*t = max(min(*t, rows-v.rows), 0)
}
