package checks

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// Links finds links of Markdown files that lead to no file, folder or heading of the module. Links to other sites
// are not followed, and what stands in code is no link.
func Links(fsys fs.FS, files []string) ([]Problem, error) {
	var problems []Problem
	for _, name := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		info, err := fs.Lstat(fsys, name)
		if err != nil || !info.Mode().IsRegular() {
			continue // as in HomePaths
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		page := parseMarkdown(text)
		for _, link := range page.links {
			if what := dead(fsys, name, link.to); what != "" {
				problems = append(problems, Problem{Path: name, Line: link.line, What: what})
			}
		}
	}
	return problems, nil
}

// dead says what is wrong with a link of a file; "" if nothing is.
func dead(fsys fs.FS, from, to string) string {
	if strings.Contains(to, ":") { // https:, mailto:
		return ""
	}
	target, heading, _ := strings.Cut(to, "#")
	file := from
	if target != "" {
		file = path.Join(path.Dir(from), target)
	}
	if _, err := fs.Stat(fsys, file); err != nil {
		return fmt.Sprintf("links to %s, which is not there", to)
	}
	if heading == "" || path.Ext(file) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(fsys, file)
	if err != nil || !parseMarkdown(text).headings[heading] {
		return fmt.Sprintf("links to %s, but no such heading is there", to)
	}
	return ""
}

type link struct {
	to   string
	line int
}

// markdown is what a page links to, and the names of its headings as links write them.
type markdown struct {
	links    []link
	headings map[string]bool
}

func parseMarkdown(text []byte) markdown {
	linked, code := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("`[^`]*`")
	page := markdown{headings: make(map[string]bool)}
	line, fenced := 0, false
	for each := range bytes.Lines(text) {
		line++
		if bytes.HasPrefix(bytes.TrimSpace(each), []byte("```")) {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if title, ok := strings.CutPrefix(strings.TrimLeft(string(each), "#"), " "); ok && each[0] == '#' {
			page.headings[headingName(title)] = true
		}
		for _, found := range linked.FindAllSubmatch(code.ReplaceAll(each, nil), -1) {
			page.links = append(page.links, link{string(found[1]), line})
		}
	}
	return page
}

// headingName is the name that GitHub gives a heading: letters, digits, hyphens and underscores, lower case, with
// hyphens for spaces.
func headingName(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(title))
}
