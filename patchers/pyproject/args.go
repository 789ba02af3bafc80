package pyproject

import (
	"errors"
	"slices"
	"strings"
)

// setupShow is the option that makes setup and teardown visible in pytest's log.
const setupShow = "--setup-show"

// shows reports whether args make pytest show setup and teardown: by the option
// itself, by its other spelling, or by an option that implies it.
func shows(args []string) bool {
	return slices.ContainsFunc(options(args), func(arg string) bool {
		switch arg {
		case setupShow, "--setupshow", "--setup-only", "--setuponly", "--setup-plan", "--setupplan":
			return true
		}
		return false
	})
}

// blocks reports whether args switch off the plugin that shows. The option is
// then accepted and does nothing.
func blocks(args []string) bool {
	args = options(args)
	for i, arg := range args {
		if arg == "-pno:setuponly" || arg == "no:setuponly" && i > 0 && args[i-1] == "-p" {
			return true
		}
	}
	return false
}

// options returns the part of args in which options stand.
func options(args []string) []string {
	if end := slices.Index(args, "--"); end >= 0 {
		return args[:end]
	}
	return args
}

// extends reports whether new is old with option added, in a place where pytest
// takes it for an option.
func extends(old, new []string, option string) bool {
	if len(new) != len(old)+1 {
		return false
	}
	last := len(old)
	return new[0] == option && slices.Equal(new[1:], old) ||
		new[last] == option && slices.Equal(new[:last], old) && !slices.Contains(old, "--")
}

// split splits a command line as Python's shlex.split does, which is what pytest
// reads addopts with. The error is Python's, too.
func split(line string) ([]string, error) {
	var args []string
	var arg strings.Builder
	const none, word = 0, 'a'
	state, outer := rune(none), rune(none) // outer: where an escape returns to
	for _, c := range line {
		switch state {
		case '\\':
			if outer == '"' && c != '\\' && c != '"' {
				arg.WriteByte('\\')
			}
			arg.WriteRune(c)
			state = outer
			continue
		case '"', '\'':
			switch {
			case c == state:
				state = word
			case c == '\\' && state == '"':
				state, outer = c, state
			default:
				arg.WriteRune(c)
			}
			continue
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			if state == word {
				args = append(args, arg.String())
				arg.Reset()
			}
			state = none
		case '\\':
			state, outer = c, word
		case '"', '\'':
			state = c
		default:
			arg.WriteRune(c)
			state = word
		}
	}
	switch state {
	case '\\':
		return nil, errors.New("no escaped character")
	case '"', '\'':
		return nil, errors.New("no closing quotation")
	case word:
		args = append(args, arg.String())
	}
	return args, nil
}
