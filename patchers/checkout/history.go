package checkout

import (
	"fmt"

	"ncclfix/patchers"
)

// A Written is a write, or the undo of one, that the journal remembers.
type Written struct {
	ID     string
	Undoes string   // id of the write that this one took back, or ""
	Undone bool     // taken back since
	Files  []string // by path
}

// History returns what was written to the tree, oldest first.
func (c *Checkout) History() ([]Written, error) {
	j, err := c.openJournal()
	if err != nil {
		return nil, err
	}
	defer j.Close()
	ids, err := j.ids()
	if err != nil {
		return nil, err
	}
	var out []Written
	at := map[string]int{}
	for i, id := range ids {
		m, err := j.load(id)
		if err != nil {
			return nil, fmt.Errorf("reading the journal %s: %w", j.Name(), cause(err))
		}
		w := Written{ID: id, Undoes: m.Undoes}
		for _, e := range m.Files {
			w.Files = append(w.Files, e.Path)
		}
		at[id] = i
		if undone, known := at[m.Undoes]; known {
			out[undone].Undone = true
		}
		out = append(out, w)
	}
	return out, nil
}

// Reverse returns what Undo would do, and the id that "" stands for. It changes
// nothing in the tree, and refuses what Undo would refuse for the state of the
// files.
func (c *Checkout) Reverse(id string) (string, *patchers.ChangeSet, error) {
	j, err := c.openJournal()
	if err != nil {
		return "", nil, err
	}
	defer j.Close()
	m, err := c.undoable(j, id)
	if err != nil {
		return "", nil, err
	}
	files, err := c.reverse(j, m)
	if err != nil {
		return "", nil, err
	}
	return m.ID, &patchers.ChangeSet{Files: files}, nil
}
