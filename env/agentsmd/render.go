package agentsmd

import (
	"fmt"
	"strings"
)

// The texts that models know.
const (
	header    = "# AGENTS.md instructions"
	separator = "--- project-doc ---"
	replaces  = "These AGENTS.md instructions replace all previously provided AGENTS.md instructions."
	removes   = "The previously provided AGENTS.md instructions no longer apply."
)

// Render is what a model is told of the user's own instructions, home, and those of the environments that have any;
// "" if there are none at all. The text is not escaped.
func Render(home string, projects []Project) string {
	title, body := compose(home, projects)
	if body == "" {
		return ""
	}
	return message(title, body)
}

// RenderChange is Render for a model that was told something else before, which it is to forget.
func RenderChange(home string, projects []Project) string {
	title, body := compose(home, projects)
	if body == "" {
		return message(header, removes)
	}
	return message(title, replaces+"\n\n"+body)
}

func message(title, body string) string {
	return title + "\n\n<INSTRUCTIONS>\n" + body + "\n</INSTRUCTIONS>"
}

// compose makes the two parts of a message. The environments are told apart if more than one says something.
func compose(home string, projects []Project) (title, body string) {
	var parts []string
	if home = strings.TrimSpace(home); home != "" {
		parts = append(parts, home)
	}
	var telling []Project
	for _, p := range projects {
		if len(p.Docs) > 0 {
			telling = append(telling, p)
		}
	}
	title = header
	switch len(telling) {
	case 0:
	case 1:
		title += " for " + telling[0].Directory.Display()
		if home != "" {
			parts = append(parts, separator)
		}
		parts = append(parts, telling[0].text())
	default:
		for _, p := range telling {
			parts = append(parts, fmt.Sprintf("for `%s` with root %s", p.Environment, p.Directory.Display()), p.text())
		}
	}
	return title, strings.Join(parts, "\n\n")
}

// text is what all of a project's files say.
func (p *Project) text() string {
	texts := make([]string, len(p.Docs))
	for i, doc := range p.Docs {
		texts[i] = doc.Text
	}
	return strings.Join(texts, "\n\n")
}
