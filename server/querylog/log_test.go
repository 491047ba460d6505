package querylog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a line of the log, as a reader takes it.
type line struct {
	Time      time.Time `json:"time"`
	Client    string    `json:"client"`
	Port      int       `json:"port"`
	Transport string    `json:"transport"`
	Name      *string   `json:"name"`
	Type      *string   `json:"type"`
	Class     *string   `json:"class"`
	Rcode     string    `json:"rcode"`
	Size      int       `json:"size"`
	Epoch     int       `json:"epoch"`
	Worker    int       `json:"worker"`
}

func name(t *testing.T, text string) []byte {
	t.Helper()
	b, err := wire.AppendName(nil, []byte(text), []byte{0})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fill fills a record that says who and how many it is.
func fill(r *Record, port, size int, name []byte) {
	*r = Record{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC).UnixNano(), IP: netip.MustParseAddr("192.0.2.1").As16(), Port: uint16(port),
		Type: 1, Class: 1, Size: uint16(size), NameLen: uint8(len(name)),
	}
	copy(r.Name[:], name)
}

func TestLine(t *testing.T) {
	var r Record
	fill(&r, 4711, 62, name(t, "www.example.com."))
	const want = `{"time":"2026-01-02T03:04:05.678901Z","client":"192.0.2.1","port":4711,"transport":"udp",` +
		`"name":"www.example.com.","type":"A","class":"IN","rcode":"NOERROR","size":62,"epoch":7,"worker":3}` + "\n"
	if got := string(appendLine(nil, &r, lineTail(7, 3))); got != want {
		t.Errorf("line\n%swant\n%s", got, want)
	}
}

// Every record is one line of JSON, whatever the name and the numbers.
func TestLineIsJSON(t *testing.T) {
	var all []byte
	for c := range 256 {
		all = append(all, 1, byte(c))
	}
	all = append(all[:250:250], 0)
	for _, c := range []struct {
		name                   []byte
		qtype, class, rcode    uint16
		wantType, wantC, wantR string
		wantName               string
	}{
		{name(t, `a\"b\\c\000d.x.`), 65280, 3, 16, "TYPE65280", "CH", "BADVERS", `a\"b\\c\000d.x.`},
		{name(t, "."), 255, 255, 23, "ANY", "ANY", "RCODE23", "."},
		{all, 28, 77, 5, "AAAA", "CLASS77", "REFUSED", wire.Text(all)},
	} {
		r := Record{Type: c.qtype, Class: c.class, Rcode: c.rcode, TCP: true, NameLen: uint8(len(c.name)), IP: netip.MustParseAddr("2001:db8::1").As16()}
		copy(r.Name[:], c.name)
		got := appendLine(nil, &r, lineTail(1, 0))
		var l line
		if err := json.Unmarshal(got, &l); err != nil {
			t.Fatalf("%v in %s", err, got)
		}
		if len(got) > maxLine || bytes.Count(got, []byte("\n")) != 1 || *l.Name != c.wantName || *l.Class != c.wantC || l.Rcode != c.wantR ||
			l.Client != "2001:db8::1" || l.Transport != "tcp" || *l.Type != c.wantType && c.qtype != 255 {
			t.Errorf("line %s", got)
		}
	}
	var r Record // without a question
	var l line
	if err := json.Unmarshal(appendLine(nil, &r, lineTail(1, 0)), &l); err != nil || l.Name != nil || l.Type != nil || l.Class != nil {
		t.Errorf("%+v, %v", l, err)
	}
}

// open returns a log to a new file, and its path.
func open(t *testing.T, every int) (*Log, *counters.Block, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b := new(counters.Block)
	return New(fd, every, 7, 3, b, slog.New(slog.DiscardHandler)), b, path
}

// read returns the lines of a file.
func read(t *testing.T, path string) (lines []line) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(b)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		lines = append(lines, l)
	}
	return lines
}

// Many lanes that log everything: each record is written whole and once, in the
// order of its lane, or counted as dropped.
func TestConcurrent(t *testing.T) {
	const lanes, each = 4, 8000
	l, b, path := open(t, 1)
	var running sync.WaitGroup
	for lane := range lanes {
		s := l.Sampler(b)
		running.Go(func() {
			n := []byte{1, byte('a' + lane), 0}
			tick := time.NewTicker(flushEvery / 10)
			defer tick.Stop()
			for i := range each {
				r := s.Begin()
				if r == nil { // let the writer catch up
					<-tick.C
					continue
				}
				fill(r, lane, i, n)
				s.Commit()
			}
		})
	}
	running.Wait()
	l.Close()
	last := [lanes]int{-1, -1, -1, -1}
	lines := read(t, path)
	for _, l := range lines {
		if *l.Name != fmt.Sprintf("%c.", 'a'+l.Port) || l.Size <= last[l.Port] {
			t.Fatalf("after %d: %+v", last[l.Port], l)
		}
		last[l.Port] = l.Size
	}
	logged, not := b.Load(counters.QueriesLogged), b.Load(counters.QueriesNotLogged)
	t.Logf("%d logged, %d dropped", logged, not)
	if int(logged) != len(lines) || logged+not != lanes*each {
		t.Errorf("%d lines, %d logged and %d not of %d", len(lines), logged, not, lanes*each)
	}
	if logged < 3*queueSize {
		t.Errorf("less than three laps of the queue were logged")
	}
}

// The sample has the size that was asked for, and is not every hundredth.
func TestSample(t *testing.T) {
	const queries, every = 200_000, 100
	l, b, path := open(t, every)
	s := l.Sampler(b)
	gaps := map[int]int{}
	last := -1
	for i := range queries {
		if r := s.Begin(); r != nil {
			fill(r, 0, 0, nil)
			s.Commit()
			gaps[i-last]++
			last = i
		}
	}
	l.Close()
	n := len(read(t, path))
	if n < queries/every*9/10 || n > queries/every*11/10 {
		t.Errorf("%d of %d are logged", n, queries)
	}
	if len(gaps) < 100 {
		t.Errorf("%d different gaps", len(gaps))
	}
}

// A queue that is full drops, and does not block; it goes on when there is room.
func TestFull(t *testing.T) {
	q := newQueue(8)
	for lap := range 5 {
		for i := range 8 {
			s, at := q.begin()
			if s == nil {
				t.Fatalf("lap %d: full after %d", lap, i)
			}
			s.Size = uint16(lap*8 + i)
			q.commit(s, at)
		}
		if s, _ := q.begin(); s != nil {
			t.Fatalf("lap %d: nine records in a queue of eight", lap)
		}
		for i := range 8 {
			if !q.next(func(r *Record) {
				if r.Size != uint16(lap*8+i) {
					t.Errorf("lap %d: record %d is %d", lap, i, r.Size)
				}
			}) {
				t.Fatalf("lap %d: empty after %d", lap, i)
			}
		}
		if q.next(func(*Record) {}) {
			t.Fatalf("lap %d: a record too many", lap)
		}
	}
	// What is not committed holds up what is behind it, and nothing else.
	first, at := q.begin()
	second, at2 := q.begin()
	q.commit(second, at2)
	if q.next(func(*Record) {}) {
		t.Error("a record overtakes one that is not filled yet")
	}
	q.commit(first, at)
	for n := range 2 {
		if !q.next(func(*Record) {}) {
			t.Errorf("record %d is not there", n)
		}
	}
}

// A pipe that nobody empties costs records, not time, and cuts no line.
func TestFullPipe(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if cut := slowReader(t, ends); cut != 0 {
		t.Errorf("%d lines are cut", cut)
	}
}

// What takes a part of a line, as a full disk does, gets whole lines behind it
// again; the cut line counts as not logged.
func TestCutLine(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if cut := slowReader(t, ends); cut == 0 {
		t.Error("no line was cut")
	}
}

// slowReader logs to ends[1] until records are lost, and then reads ends[0], and
// returns how many lines were cut.
func slowReader(t *testing.T, ends [2]int) (cut int) {
	if err := unix.SetNonblock(ends[1], true); err != nil {
		t.Fatal(err)
	}
	b := new(counters.Block)
	l := New(ends[1], 1, 7, 3, b, slog.New(slog.DiscardHandler))
	s := l.Sampler(b)
	sent := uint64(0)
	add := func() {
		sent++
		if r := s.Begin(); r != nil {
			fill(r, 1, 2, []byte{1, 'x', 0})
			s.Commit()
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for b.Load(counters.QueriesNotLogged) == 0 {
		for range queueSize / 4 { // the queue is not what is full
			add()
		}
		for b.Load(counters.QueriesLogged)+b.Load(counters.QueriesNotLogged) < sent {
			<-tick.C
		}
	}
	r := os.NewFile(uintptr(ends[0]), "pipe")
	whole, parts := make(chan int), make(chan int)
	go func() {
		w, c := 0, 0
		for in := bufio.NewScanner(r); in.Scan(); {
			if json.Valid(in.Bytes()) {
				w++
			} else {
				c++
			}
		}
		r.Close()
		whole <- w
		parts <- c
	}()
	for range 2 * queueSize {
		add()
		<-tick.C
		if b.Load(counters.QueriesLogged) > 2000 {
			break
		}
	}
	l.Close()
	w, cut := <-whole, <-parts
	logged, not := b.Load(counters.QueriesLogged), b.Load(counters.QueriesNotLogged)
	t.Logf("%d sent, %d logged, %d not; %d whole lines, %d cut", sent, logged, not, w, cut)
	if logged+not != sent || uint64(w) != logged || w == 0 {
		t.Errorf("%d logged and %d not of %d; %d whole lines and %d cut", logged, not, sent, w, cut)
	}
	return cut
}

// A nil log costs a look at a pointer.
func TestOff(t *testing.T) {
	var l *Log
	s := l.Sampler(nil)
	if r := s.Begin(); r != nil {
		t.Error("a record of a log that is off")
	}
	l.Close()
}

func TestNoAllocation(t *testing.T) {
	l, b, _ := open(t, 1)
	defer l.Close()
	s := l.Sampler(b)
	if n := testing.AllocsPerRun(1000, func() {
		if r := s.Begin(); r != nil {
			r.NameLen = 0
			s.Commit()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOff(b *testing.B) {
	var s *Sampler
	for b.Loop() {
		if s.Begin() != nil {
			b.Fatal("a record")
		}
	}
}
