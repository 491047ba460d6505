package zone

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkCompile compiles zones of many small names, of one address each and
// of delegations, and reports CPU time and image size per record.
func BenchmarkCompile(b *testing.B) {
	for _, c := range []struct {
		name    string
		records int
		line    func(w *strings.Builder, i int)
	}{
		{"A/10k", 10_000, addressLine},
		{"A/1M", 1_000_000, addressLine},
		{"delegations/1M", 500_000, func(w *strings.Builder, i int) {
			fmt.Fprintf(w, "name%d NS ns1.host%d.example.net.\nname%d NS ns2.host%d.example.net.\n", i, i%1000, i, i%1000)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			if testing.Short() && c.records > 10_000 {
				b.Skip("SKIPPED: a large zone (-short)")
			}
			var text strings.Builder
			text.WriteString(apexText)
			for i := range c.records {
				c.line(&text, i)
			}
			file := filepath.Join(b.TempDir(), "zone")
			if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			start := processCPU(b)
			records, size := 0, 0
			for b.Loop() {
				compiled, rep, err := Compile("z.", file)
				if err != nil {
					b.Fatal(err)
				}
				r, err := compiled.Region("bench")
				if err != nil {
					b.Fatal(err)
				}
				r.Close()
				records, size = rep.Records, rep.Size
			}
			b.ReportMetric(float64(processCPU(b)-start)/float64(b.N)/float64(records), "cpu-ns/record")
			b.ReportMetric(float64(size)/float64(records), "image-B/record")
		})
	}
}

func addressLine(w *strings.Builder, i int) {
	fmt.Fprintf(w, "host-%d A 10.%d.%d.%d\n", i, i>>16&255, i>>8&255, i&255)
}

// processCPU returns the nanoseconds of CPU that the process has used.
func processCPU(b *testing.B) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return ts.Nano()
}
