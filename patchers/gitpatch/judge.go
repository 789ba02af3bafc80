package gitpatch

import (
	"errors"
	"io/fs"

	"ncclfix/patchers"
)

// A State is how a series and a tree stand to each other.
type State int

const (
	Applies   State = iota // the tree has none of it, and all of it fits
	Applied                // the tree has all of it
	Partly                 // the tree has some of the commits, and the others fit
	Conflicts              // it does not fit
)

func (s State) String() string {
	return [...]string{"applies", "already applied", "applied in part", "does not apply"}[s]
}

// A Verdict is what [Series.Judge] finds.
type Verdict struct {
	State    State
	In       []bool              // for each commit, whether the tree has it
	Changes  *patchers.ChangeSet // what gives the tree all of the series; empty unless Applies or Partly
	Offsets  []Offset            // hunks that fit elsewhere than recorded; of State Applies or Partly
	Conflict *Conflict           // why it Conflicts; otherwise nil
}

// Judge says whether the series fits the tree or is in it. It is in it if the
// reversed series fits, which is what git apply -R --check asks. A patch that
// would fit again on top of itself, such as one that adds a line to a run of
// equal ones, therefore counts as applied. If neither fits, commits are looked
// for one by one, from the last. What is found counts if the whole series fits
// the tree without it, or fits at least further than it fits the tree with it.
//
// An error means that the tree could not be read; a conflict is none.
func (s *Series) Judge(tree fs.FS) (*Verdict, error) {
	v := &Verdict{In: make([]bool, len(s.Commits)), Changes: &patchers.ChangeSet{}}
	conflict := (*Conflict)(nil)
	_, _, err := s.Reverse().Apply(tree)
	if err == nil {
		v.State = Applied
		for i := range v.In {
			v.In[i] = true
		}
		return v, nil
	}
	if !errors.As(err, &conflict) {
		return nil, err
	}
	set, offsets, err := s.Apply(tree)
	if err == nil {
		v.State, v.Changes, v.Offsets = Applies, set, offsets
		return v, nil
	}
	if !errors.As(err, &v.Conflict) {
		return nil, err
	}
	v.State = Conflicts
	found, err := s.judgeCommits(tree)
	if err != nil {
		return nil, err
	}
	if found.State == Partly || found.Conflict.Commit > v.Conflict.Commit {
		return found, nil
	}
	return v, nil
}

// judgeCommits takes back the commits that the tree has and then makes all.
func (s *Series) judgeCommits(tree fs.FS) (*Verdict, error) {
	v := &Verdict{State: Partly, In: make([]bool, len(s.Commits)), Changes: &patchers.ChangeSet{}}
	conflict := (*Conflict)(nil)
	im := &image{tree: tree}
	for i := len(s.Commits) - 1; i >= 0; i-- {
		without := im.clone()
		_, err := without.commit(s.Commits[i].reverse())
		if err != nil {
			if !errors.As(err, &conflict) {
				return nil, err
			}
			continue
		}
		im, v.In[i] = without, true
	}
	var err error
	v.Offsets, err = im.apply(s.Commits)
	if errors.As(err, &v.Conflict) {
		v.State = Conflicts
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	v.Changes, err = im.changes()
	return v, err
}
