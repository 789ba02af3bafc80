package rebuild

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Var is a variable of a step's environment.
type Var struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An environment is what the steps inherit, without what they are given.
type environment struct {
	vars     []Var    // by name, handed on
	withheld []string // names of secrets, sorted
}

// inherit sorts the variables of env, which is as os.Environ has it, into those
// that are handed on and those that are not. Secrets are not, but for those
// named in keep.
func inherit(env, keep []string) environment {
	var e environment
	for _, v := range env {
		name, value, ok := strings.Cut(v, "=")
		switch {
		case !ok || name == "":
		case secret(name) && !slices.Contains(keep, name):
			e.withheld = append(e.withheld, name)
		default:
			e.vars = append(e.vars, Var{name, value})
		}
	}
	slices.SortFunc(e.vars, func(a, b Var) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(e.withheld)
	return e
}

// secret reports whether a variable's name says that it holds a secret.
func secret(name string) bool {
	name = strings.ToUpper(name)
	for _, end := range []string{"_TOKEN", "_KEY", "_SECRET"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return strings.Contains(name, "PASSWORD")
}

// get returns the value of a variable that is handed on, or "".
func (e environment) get(name string) string { return lookup(e.vars, name) }

// lookup returns the value of the last variable with the name, or "".
func lookup(vars []Var, name string) string {
	for _, v := range slices.Backward(vars) {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// with returns the whole environment of a step that is given set, as package os
// has it.
func (e environment) with(set []Var) []string {
	var all []string
	for _, v := range slices.Concat(e.vars, set) {
		if i := slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, v.Name+"=") }); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
		all = append(all, v.Name+"="+v.Value)
	}
	return all
}

// prepend puts dir in front of a list of folders.
func prepend(dir, list string) string {
	if list == "" {
		return dir // an empty entry would be the current folder
	}
	return dir + string(filepath.ListSeparator) + list
}

// override returns set, with the values of over in place of its own and behind
// them those that it lacks.
func override(set, over []Var) []Var {
	set = slices.Clone(set)
	for _, o := range over {
		i := slices.IndexFunc(set, func(v Var) bool { return v.Name == o.Name })
		if i < 0 {
			set = append(set, o)
			continue
		}
		set[i] = o
	}
	return set
}

// parseSet reads the NAME=VALUE of --set.
func parseSet(set []string) ([]Var, error) {
	var vars []Var
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		switch {
		case !ok || name == "" || strings.ContainsAny(s, "\x00\n"):
			return nil, fmt.Errorf("reading --set %q: it is not NAME=VALUE", s)
		case name == "NVSHMEM_USE_NCCL" && !off(value):
			return nil, fmt.Errorf("refusing --set %s: a rebuild is there to switch it off", s)
		case name == "NVSHMEM_DIR":
			return nil, fmt.Errorf("refusing --set %s: --prefix says where NVSHMEM is installed, and with --skip-nvshmem the variable itself", s)
		}
		vars = override(vars, []Var{{name, value}})
	}
	return vars, nil
}

// off reports whether CMake takes value for false.
func off(value string) bool {
	value = strings.ToUpper(value)
	return slices.Contains([]string{"", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND"}, value) || strings.HasSuffix(value, "-NOTFOUND")
}

// lookPath returns the program that a shell with this PATH would run, or "". It
// does not look into relative folders.
func lookPath(name, path string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}
