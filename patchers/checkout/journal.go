package checkout

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A journal is the folder that remembers the writes to one tree. While it is
// open, no other process can write to the tree.
//
// The folder "pending" is a write that is under way or was interrupted, once it
// has its manifest.json; before, the tree is untouched. Renaming the folder to
// the write's id makes the write count.
type journal struct {
	disk
	lock *os.File
}

const (
	pending  = "pending"
	kept     = 50      // how many writes are remembered
	leftover = ".left" // ends the name of a pending folder that could not be put back whole
)

// A manifest is what the journal knows of a write beside the old bytes, which
// are in the files old/0, old/1 and so on, by the position of the entry.
type manifest struct {
	ID     string   `json:"id"`
	Root   string   `json:"root"`
	Undoes string   `json:"undoes,omitempty"` // id of the write that this one takes back
	Dirs   []string `json:"dirs,omitempty"`   // folders that the write makes, or takes back; outermost first
	Files  []entry  `json:"files"`
}

// An entry is one file of a write.
type entry struct {
	Path   string `json:"path"`
	Stage  string `json:"stage"`            // where the new file waits, beside Path
	Before *state `json:"before,omitempty"` // nil if there is no file
	After  *state `json:"after,omitempty"`
}

// A state is what the journal knows of a file that is there.
type state struct {
	SHA256 string      `json:"sha256"`
	Mode   fs.FileMode `json:"mode"` // modeBits
}

func stateOf(data []byte, mode fs.FileMode) *state {
	sum := sha256.Sum256(data)
	return &state{SHA256: hex.EncodeToString(sum[:]), Mode: mode & modeBits}
}

// matches reports whether now, nil for no file, is s, which is Before or After
// of e. Modes count only if the write changes the mode.
func (e entry) matches(s, now *state) bool {
	if s == nil || now == nil {
		return s == now
	}
	modes := e.Before != nil && e.After != nil && e.Before.Mode != e.After.Mode
	return s.SHA256 == now.SHA256 && (!modes || s.Mode == now.Mode)
}

// stateDir returns the folder of all journals. XDG's specification asks to
// ignore a variable that is not absolute.
func stateDir() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "ncclfix"), nil
}

// journalDir returns the folder of the tree's journal.
func (c *Checkout) journalDir() (string, error) {
	base, err := stateDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(c.dir))
	return filepath.Join(base, hex.EncodeToString(sum[:8])), nil
}

// openJournal makes the journal's folder if need be and locks it.
func (c *Checkout) openJournal() (*journal, error) {
	dir, err := c.journalDir()
	if err == nil {
		err = makeAll(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("making the journal's folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the journal %s: %w", dir, cause(err))
	}
	lock, err := root.OpenFile("lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			lock.Close()
		}
	}
	if err != nil {
		root.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("refusing to work on %s: another ncclfix is writing to it", c.dir)
		}
		return nil, fmt.Errorf("locking the journal %s: %w", dir, cause(err))
	}
	return &journal{disk: disk{Root: root, before: c.tree.before}, lock: lock}, nil
}

// Close unlocks the journal.
func (j *journal) Close() {
	j.lock.Close()
	j.Root.Close()
}

// makeAll makes the folder dir and those above it last.
func makeAll(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := makeAll(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.Sync()
}

// An id is the time of the write, in UTC, and some digits that keep the ids of
// different trees apart.
var idPattern = regexp.MustCompile(`^(\d{8}-\d{6})-[0-9a-f]{4}$`)

const idTime = "20060102-150405"

// newID returns an id that sorts behind those given, whatever the clock says.
func newID(ids []string) string {
	now := time.Now().UTC()
	if len(ids) > 0 {
		last, err := time.Parse(idTime, idPattern.FindStringSubmatch(ids[len(ids)-1])[1])
		if err == nil && !now.Truncate(time.Second).After(last) {
			now = last.Add(time.Second)
		}
	}
	var b [2]byte
	rand.Read(b[:])
	return now.Format(idTime) + "-" + hex.EncodeToString(b[:])
}

// ids returns the ids of all writes that count, oldest first.
func (j *journal) ids() ([]string, error) {
	entries, err := fs.ReadDir(j.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("reading the journal %s: %w", j.Name(), cause(err))
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && idPattern.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// load reads the manifest in the folder name: an id or pending.
func (j *journal) load(name string) (*manifest, error) {
	data, err := j.ReadFile(path.Join(name, "manifest.json"))
	if err != nil {
		return nil, err
	}
	m := new(manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%s/manifest.json: %w", name, err)
	}
	return m, nil
}

// oldFile is where a write's folder has the old bytes of its i-th file.
func oldFile(i int) string { return path.Join("old", strconv.Itoa(i)) }

// old reads the old bytes of m.Files[i] from the folder name.
func (j *journal) old(name string, m *manifest, i int) ([]byte, error) {
	file := path.Join(name, oldFile(i))
	data, err := j.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if want := m.Files[i].Before; stateOf(data, 0).SHA256 != want.SHA256 {
		return nil, fmt.Errorf("%s is damaged", file)
	}
	return data, nil
}

// prune forgets the oldest writes, so that there is room for one more.
func (j *journal) prune() error {
	entries, err := fs.ReadDir(j.FS(), ".")
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return !idPattern.MatchString(strings.TrimSuffix(e.Name(), leftover))
	})
	for _, e := range entries[:max(0, len(entries)-kept+1)] {
		if err := j.RemoveAll(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// begin makes the pending folder. targets are those of m.Files.
func (j *journal) begin(m *manifest, targets []target) error {
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	old := path.Join(pending, "old")
	for _, dir := range []string{pending, old} {
		if err := j.mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	private := meta{mode: 0o600}
	for i, t := range targets {
		if t.entry.Before == nil {
			continue
		}
		if err := j.create(path.Join(pending, oldFile(i)), t.change.Old, private); err != nil {
			return err
		}
	}
	draft := path.Join(pending, "draft.json")
	if err := j.create(draft, text, private); err != nil {
		return err
	}
	if err := j.syncDirs(old, pending, "."); err != nil {
		return err
	}
	if err := j.rename(draft, path.Join(pending, "manifest.json")); err != nil {
		return err
	}
	return j.syncDirs(pending)
}

// commit makes the pending write count. If it returns an error, the write does
// not.
func (j *journal) commit(id string) error {
	if err := j.rename(pending, id); err != nil {
		return err
	}
	if err := j.syncDirs("."); err != nil {
		if e := j.rename(id, pending); e != nil {
			return fmt.Errorf("%w; taking that back: %w", err, e)
		}
		return err
	}
	return nil
}

// drop forgets the pending write. What is in the way of a whole removal does no
// harm once the manifest is gone.
func (j *journal) drop() error {
	if err := j.remove(path.Join(pending, "manifest.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return j.RemoveAll(pending)
}

// abandon ends the pending write, which was put back. If keep is set, its old
// bytes stay for a person to look at.
func (j *journal) abandon(id string, keep bool) error {
	if !keep {
		return j.drop()
	}
	if err := j.rename(pending, id+leftover); err != nil {
		return err
	}
	return j.syncDirs(".")
}
