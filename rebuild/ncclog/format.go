package ncclog

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A format is what a line's own form says of where it comes from.
type format struct {
	source        Source
	level         Level
	host          string
	pid, tid, gpu int
	location      string
}

var (
	// HOST:PID:TID [GPU] file.cc:123 NCCL WARN text; the file may be followed by
	// the function in brackets.
	ncclFormat = regexp.MustCompile(`(\S*?):(\d+):(\d+) \[(-?\d+)\] (?:(\S+:\d+) )?(?:\(\S*\) )?NCCL (WARN|ERROR)\b`)
	// [W1201 00:46:44.425038426 ProcessGroupNCCL.cpp:1575], before PyTorch 2.2
	// [W ProcessGroupNCCL.cpp:458], with glog W20221201 00:46:44.425038 19561 a.cpp:3],
	// in Python W0219 09:17:03.837000 140066 a/b.py:858].
	torchFormat = regexp.MustCompile(`(?:\[|^)([WEFC])(?:\d{3,8} [\d:.]+)?(?: \d+)* (?:\S*/)?(\w+\.(?:cpp|cc|h|hpp|py):\d+)\]`)
	// Words by which a line calls itself a warning or an error.
	levelWord = regexp.MustCompile(`(?:^|[^\w=/.-])(WARN|WARNING|ERROR|FATAL|CRITICAL|ERR)(?:[^\w=/]|$)|(?i:\b\w*(warning|error|fatal)): `)
)

var c10dFile = regexp.MustCompile(`^(?:ProcessGroup|NCCLUtils|socket\.|Store\.|FlightRecorder)`)

var torchLevels = map[byte]Level{'W': Warning, 'E': Error, 'F': Fatal, 'C': Fatal}

// parseFormat reads where a line comes from, and reports whether it calls itself
// a warning or an error.
func parseFormat(line, rest []byte) (format, bool) {
	f := format{source: Program, level: Warning, pid: -1, tid: -1, gpu: -1}
	if m := ncclFormat.FindSubmatch(line); m != nil {
		f.source, f.host, f.location = NCCL, string(m[1]), string(m[5])
		f.pid, f.tid, f.gpu = atoi(m[2]), atoi(m[3]), atoi(m[4])
		if string(m[6]) == "ERROR" {
			f.level = Error
		}
		return f, true
	}
	if contains(line, "NCCL WARN") {
		f.source = NCCL
		return f, true
	}
	in := line
	m := torchFormat.FindSubmatchIndex(in)
	if m == nil {
		in = rest
		m = torchFormat.FindSubmatchIndex(in)
	}
	if m != nil {
		f.source, f.level, f.location = PyTorch, torchLevels[in[m[2]]], string(in[m[4]:m[5]])
		switch {
		case contains(line, "TCPStore"):
			f.source = TCPStore
		case contains(line, "elastic/"):
			f.source = Runner
		case strings.Contains(f.location, ".py:"):
			f.source = Python
		case c10dFile.MatchString(f.location) || contains(line, "[c10d]"):
			f.source = C10D
		}
		// A frame of blanks and stars around another line says nothing.
		return f, bytes.ContainsFunc(in[m[1]:], unicode.IsLetter)
	}
	if contains(line, "nvshmem") || contains(line, "NVSHMEM") || bytes.HasPrefix(rest, []byte("WARN: ")) {
		f.source = NVSHMEM
	}
	w := levelWord.FindSubmatch(rest)
	if w == nil {
		return f, false
	}
	word := w[1]
	if word == nil {
		word = w[2]
	}
	f.level = levelOf(string(bytes.ToLower(word)))
	if bytes.HasSuffix(w[0], []byte("Warning: ")) {
		f.source = Python
	}
	return f, true
}

func levelOf(word string) Level {
	switch word {
	case "warn", "warning":
		return Warning
	case "fatal", "critical":
		return Fatal
	}
	return Error
}

var prefix = regexp.MustCompile(`^(?:` +
	`\[rank(\d+)\]:\s?` + // PyTorch
	`|\[default(\d+)\]:\s?` + // torchrun --tee
	`|\[\d+,(\d+)\]<std(?:out|err)>:\s?` + // mpirun --tag-output
	`|(\d{1,5}): ` + // srun --label
	`|\((?:\w+ )?(?:rank=(\d+) )?pid=\d+[^)]*\) ?` + // Ray, vLLM
	`|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?\s` + // a time in front
	`|\[\d+\] ` +
	`)`)

// stripPrefix takes off what launchers and loggers put in front of a line, and
// returns the rank that they name, or -1.
func stripPrefix(line []byte) (rest []byte, rank int) {
	rank = -1
	for len(line) > 0 && (line[0] == '[' || line[0] == '(' || '0' <= line[0] && line[0] <= '9') {
		m := prefix.FindSubmatchIndex(line)
		if m == nil {
			break
		}
		for i := 2; i < len(m); i += 2 {
			if m[i] >= 0 {
				rank = atoi(line[m[i]:m[i+1]])
			}
		}
		line = line[m[1]:]
	}
	return line, rank
}

var rankBrackets = regexp.MustCompile(`\[(?:rank |PG [^\]]*Rank |Rank )(\d+)\]`)

// bracketRank returns the rank that the message itself names, or -1.
func bracketRank(line []byte) int {
	if m := rankBrackets.FindSubmatch(line); m != nil {
		return atoi(m[1])
	}
	return -1
}

// appendPlain appends b without terminal escape sequences.
func appendPlain(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, 0x1b)
		if i < 0 {
			return append(dst, b...)
		}
		dst, b = append(dst, b[:i]...), b[i+1:]
		if len(b) == 0 || b[0] != '[' {
			continue
		}
		end := bytes.IndexFunc(b[1:], func(r rune) bool { return r >= 0x40 && r <= 0x7e })
		if end < 0 {
			return dst
		}
		b = b[1+end+1:]
	}
}

// normal returns the message with its figures made equal, so that repeats fold.
func normal(b []byte) string {
	b = b[:min(len(b), maxText)]
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case '0' <= c && c <= '9':
			if n := len(out); n == 0 || out[n-1] != '#' {
				out = append(out, '#')
			}
		case 'a' <= c && c <= 'f' && len(out) > 0 && out[len(out)-1] == '#':
			// a hexadecimal figure goes on
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// Quote returns s for a terminal or a file: control characters, and bytes that
// are no text, as Go's escapes.
func Quote(s string) string {
	q := strconv.Quote(s)
	var out []byte
	for i := 1; i < len(q)-1; i++ {
		if q[i] == '\\' && (q[i+1] == '"' || q[i+1] == '\\') {
			i++
		}
		out = append(out, q[i])
	}
	return string(out)
}
