package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// Format returns a file with its long lines broken. The program stays the same.
func Format(src []byte) ([]byte, error) {
	out := fillComments(src)
	for range 60 { // each pass breaks a line once
		next, err := pass(out)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(next, out) {
			break
		}
		out = next
	}
	if !slices.Equal(program(src), program(out)) {
		return nil, errors.New("formatting it would change the program")
	}
	return out, nil
}

// tok is a token with its place in the file.
type tok struct {
	token.Token
	text     string
	at, end  int // offsets
	line     int
	depth    int  // of the brackets around it
	implicit bool // the semicolon that a line break stands for
}

func scan(src []byte) (all []tok, lines *token.File) {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, func(token.Position, string) {}, scanner.ScanComments)
	depth := 0
	for {
		pos, t, text := s.Scan()
		if t == token.EOF {
			return all, file
		}
		if t == token.RPAREN || t == token.RBRACE || t == token.RBRACK {
			depth--
		}
		at := file.Offset(pos)
		length := len(text)
		if text == "" {
			length = len(t.String())
		}
		if t == token.SEMICOLON && text == "\n" {
			length = 0
		}
		all = append(all, tok{t, text, at, at + length, file.Line(pos), depth, length == 0})
		if t == token.LPAREN || t == token.LBRACE || t == token.LBRACK {
			depth++
		}
	}
}

// dataLines returns the lines that are a part of a text or comment of several lines.
func dataLines(src []byte) map[int]bool {
	data := map[int]bool{}
	all, _ := scan(src)
	for _, t := range all {
		for i := range strings.Count(t.text, "\n") + 1 {
			if !t.implicit && strings.Contains(t.text, "\n") {
				data[t.line+i] = true
			}
		}
	}
	return data
}

// shape has what tokens don't show.
type shape struct {
	blocks map[int]bool // where blocks, structs and interfaces begin
	whole  map[int]bool // texts that can't be split: tags and imports
}

func shapeOf(src []byte) (*shape, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &shape{map[int]bool{}, map[int]bool{}}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			s.blocks[at(n.Lbrace)] = true
		case *ast.StructType:
			s.blocks[at(n.Fields.Opening)] = true
		case *ast.InterfaceType:
			s.blocks[at(n.Methods.Opening)] = true
		case *ast.Field:
			if n.Tag != nil {
				s.whole[at(n.Tag.Pos())] = true
			}
		case *ast.ImportSpec:
			s.whole[at(n.Path.Pos())] = true
		}
		return true
	})
	return s, nil
}

// pass breaks each long line once.
func pass(src []byte) ([]byte, error) {
	src, err := format.Source(src)
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(src)
	if err != nil {
		return nil, err
	}
	all, file := scan(src)
	data := dataLines(src)
	byLine := map[int][]int{}
	for i, t := range all {
		byLine[t.line] = append(byLine[t.line], i)
	}
	type edit struct {
		at, end int
		text    string
	}
	var edits []edit
	joined := 0 // a line that the one before it takes up
	for line := 1; line <= file.LineCount(); line++ {
		start := file.Offset(file.LineStart(line))
		end := len(src)
		if line < file.LineCount() {
			end = file.Offset(file.LineStart(line+1)) - 1
		}
		if line == joined || data[line] || !tooLong(string(src[start:end])) || len(byLine[line]) == 0 {
			continue
		}
		tokens := all[byLine[line][0] : byLine[line][len(byLine[line])-1]+1]
		if up, ok := commentAbove(all, byLine[line][0], tokens); ok {
			indent := string(src[start:tokens[0].at])
			c := tokens[len(tokens)-1]
			if c.implicit {
				c = tokens[len(tokens)-2]
			}
			text := fill(indent, strings.TrimSpace(strings.TrimPrefix(up, "//")), commentWidth)
			code := strings.TrimRight(string(src[start:c.at]), " \t")
			edits = append(edits, edit{start, end, text + "\n" + code})
			continue
		}
		if at, text := best(src, start, tokens, shape); at > 0 {
			stop := at
			if text == "" {
				for stop < end && src[stop] == ' ' {
					stop++
				}
				text = "\n"
			}
			edits = append(edits, edit{at, stop, text})
			if next := byLine[line+1]; len(next) > 0 && !data[line+1] {
				if from, to, text := join(all[next[0]], tokens, at); to > 0 {
					edits = append(edits, edit{from, to, text})
					joined = line + 1
				}
			}
		}
	}
	var out bytes.Buffer
	last := 0
	for _, e := range edits {
		out.Write(src[last:e.at])
		out.WriteString(e.text)
		last = e.end
	}
	out.Write(src[last:])
	if len(edits) == 0 {
		return src, nil
	}
	return format.Source(out.Bytes())
}

// join returns how a line that is broken takes up the next one, if it is a list or a text that goes on there: what is
// left of it would be a short line.
func join(next tok, tokens []tok, broken int) (from, to int, text string) {
	last := tokens[len(tokens)-1]
	if last.Token == token.ADD && len(tokens) > 1 {
		if before := tokens[len(tokens)-2]; before.at < broken && broken < before.end && joins(before.text, next.text) {
			return before.end - 1, next.at + 1, ""
		}
	}
	if last.Token != token.COMMA && last.Token != token.LAND && last.Token != token.LOR || last.depth != next.depth ||
		next.Token == token.COMMENT {
		return 0, 0, ""
	}
	for _, t := range tokens {
		if t.end == broken && t.depth == last.depth && (t.Token == token.COMMA) == (last.Token == token.COMMA) {
			return last.end, next.at, " "
		}
	}
	return 0, 0, ""
}

// commentAbove returns the comment at the end of a line if it can stand above the line.
func commentAbove(all []tok, first int, tokens []tok) (text string, ok bool) {
	last := len(tokens) - 1
	if last > 0 && tokens[last].implicit {
		last--
	}
	c := tokens[last]
	if last == 0 || c.Token != token.COMMENT || !strings.HasPrefix(c.text, "// ") || strings.HasPrefix(c.text, "// #nosec") {
		return "", false
	}
	switch tokens[0].Token {
	case token.RPAREN, token.RBRACE, token.RBRACK, token.COMMENT:
		return "", false
	}
	for i := first - 1; i >= 0; i-- { // the token before the line ends a statement, or begins a block or a list
		switch all[i].Token {
		case token.COMMENT:
			continue
		case token.SEMICOLON, token.LBRACE, token.COLON, token.LPAREN:
			return c.text, true
		case token.COMMA:
			return c.text, true
		}
		return "", false
	}
	return "", false
}

// best returns where to break a line: the offset, and the text to insert if it is not only a line break.
func best(src []byte, start int, tokens []tok, shape *shape) (at int, text string) {
	base := tokens[0].depth
	for _, t := range tokens {
		base = min(base, t.depth)
	}
	column := func(offset int) int { return columns(string(src[start:offset])) }
	lowest := 1 << 30
	assigned := !slices.ContainsFunc(tokens, func(t tok) bool { return t.Token == token.ASSIGN || t.Token == token.DEFINE })
	for i, t := range tokens {
		if t.Token == token.ASSIGN || t.Token == token.DEFINE {
			assigned = true
		}
		if i+1 >= len(tokens) || tokens[i+1].implicit || tokens[i+1].Token == token.COMMENT && i+2 >= len(tokens) {
			continue
		}
		col := column(t.end)
		if col > width {
			break
		}
		cost := 22 * (t.depth - base)
		switch {
		case t.Token == token.COMMA && (assigned || t.depth > base):
		case t.Token == token.LAND || t.Token == token.LOR:
			cost -= 8
		case t.Token == token.OR:
			cost += 10
		case t.Token == token.ADD && i > 0 && tokens[i-1].Token != token.COMMA:
			cost += 14
		case t.Token == token.LBRACE && shape.blocks[t.at]:
			cost += 6
		case t.Token == token.LBRACE:
			cost += 26
		case t.Token == token.LPAREN:
			cost += 70
		case t.Token == token.EQL || t.Token == token.NEQ:
			cost += 60
		default:
			continue
		}
		if tokens[i+1].Token == token.RPAREN || tokens[i+1].Token == token.RBRACE {
			continue
		}
		cost += width - col
		if col < 50 {
			cost += 60
		}
		if rest := column(tokens[len(tokens)-1].end) - col; rest < 20 {
			cost += 20
		}
		if cost < lowest {
			lowest, at = cost, t.end
		}
	}
	split, cut := splitText(src, start, tokens, shape)
	if split > 0 && (at == 0 || lowest > 110) {
		return split, cut
	}
	return at, ""
}

// splitText returns where a text that crosses the margin can be split: after a space, or else after a separator.
func splitText(src []byte, start int, tokens []tok, shape *shape) (at int, text string) {
	for _, t := range tokens {
		from, to := columns(string(src[start:t.at])), columns(string(src[start:t.end]))
		if t.Token != token.STRING || shape.whole[t.at] || to < width-3 || from > width-30 {
			continue
		}
		quote := t.text[:1]
		for _, ends := range []string{" ", ",&|>;"} {
			for i := len(t.text) - 2; i > 15; i-- {
				if strings.IndexByte(ends, t.text[i-1]) >= 0 && from+columns(t.text[:i])+3 <= width && len(t.text)-i > 12 {
					return t.at + i, quote + " +\n" + quote
				}
			}
		}
	}
	return 0, ""
}

// program returns what the compiler reads of a file.
func program(src []byte) (all []string) {
	tokens, _ := scan(src)
	for _, t := range tokens {
		last := len(all) - 1
		switch {
		case t.Token == token.COMMENT && !strings.HasPrefix(t.text, "//go:") && !strings.HasPrefix(t.text, "// #nosec"):
		case t.Token == token.SEMICOLON:
			if last >= 0 && all[last] != ";" {
				all = append(all, ";")
			}
		case (t.Token == token.RBRACE || t.Token == token.RPAREN) && all[last] == ";":
			all[last] = t.String()
		case t.Token == token.STRING && last > 0 && all[last] == "+" && joins(all[last-1], t.text):
			all[last-1] = all[last-1][:len(all[last-1])-1] + t.text[1:]
			all = all[:last]
		case t.text != "":
			all = append(all, t.text)
		default:
			all = append(all, t.String())
		}
	}
	return all
}

func joins(a, b string) bool {
	return len(a) > 1 && (a[0] == '"' || a[0] == '`') && a[0] == b[0] && a[len(a)-1] == b[0]
}
