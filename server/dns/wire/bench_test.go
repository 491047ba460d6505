package wire

import (
	"testing"

	"github.com/miekg/dns"
)

// BenchmarkParse is the first step of every answer.
func BenchmarkParse(b *testing.B) {
	for name, q := range map[string]*dns.Msg{
		"plain": new(dns.Msg).SetQuestion("host-1234.example.com.", dns.TypeA),
		"edns":  new(dns.Msg).SetQuestion("host-1234.example.com.", dns.TypeA).SetEdns0(1232, false),
		"ip6":   new(dns.Msg).SetQuestion("b.a.9.8.7.6.5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", dns.TypePTR),
	} {
		b.Run(name, func(b *testing.B) {
			msg, err := q.Pack()
			if err != nil {
				b.Fatal(err)
			}
			var query Query
			for b.Loop() {
				if query.Parse(msg) != Valid {
					b.Fatal("not valid")
				}
			}
		})
	}
}
