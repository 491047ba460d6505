package load

import (
	"bytes"
	"fmt"
	"strconv"
)

// Tag is what an answer of the identify service says about who gave it.
type Tag struct {
	Epoch  uint32
	Worker int
	Lane   int
	PID    int
	Config string
}

// ParseTag reads `epoch=N worker=I lane=L pid=P config=NAME`, with or without a
// newline at the end. NAME reaches to the end and may hold spaces.
func ParseTag(b []byte) (Tag, error) {
	rest := bytes.TrimSuffix(b, []byte("\n"))
	var numbers [4]int
	for i, name := range [4]string{"epoch", "worker", "lane", "pid"} {
		field, after, found := bytes.Cut(rest, []byte(" "))
		if !found || len(field) <= len(name) || string(field[:len(name)]) != name || field[len(name)] != '=' {
			return Tag{}, fmt.Errorf("reading tag %q: no %s", b, name)
		}
		n, err := strconv.ParseUint(string(field[len(name)+1:]), 10, 32)
		if err != nil {
			return Tag{}, fmt.Errorf("reading tag %q: %s: %w", b, name, err)
		}
		numbers[i], rest = int(n), after
	}
	name, found := bytes.CutPrefix(rest, []byte("config="))
	if !found {
		return Tag{}, fmt.Errorf("reading tag %q: no config", b)
	}
	return Tag{uint32(numbers[0]), numbers[1], numbers[2], numbers[3], string(name)}, nil
}
