package auth

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
)

// model answers as the RFCs say, by looking at every record of every zone: slow,
// and nothing like the engine.
type model map[string][]dns.RR // by origin, lower case

// modelAnswer is what the model says; sections are sets of record texts.
type modelAnswer struct {
	rcode      int
	aa         bool
	an, ns, ar map[string]bool
}

func (m model) zone(name string, qtype uint16) string {
	best := ""
	for origin := range m {
		if dns.IsSubDomain(origin, name) && len(origin) > len(best) {
			best = origin
		}
	}
	if qtype == dns.TypeDS && name == best {
		for origin := range m {
			if origin != best && dns.IsSubDomain(origin, name) {
				return origin // the tests have no three zones above each other
			}
		}
	}
	return best
}

func (m model) at(zone, name string, types ...uint16) (rrs []dns.RR) {
	for _, rr := range m[zone] {
		if rr.Header().Name == name && slices.Contains(types, rr.Header().Rrtype) {
			rrs = append(rrs, rr)
		}
	}
	return rrs
}

// exists says that name or something below it owns records (RFC 4592 2.2).
func (m model) exists(zone, name string) bool {
	return slices.ContainsFunc(m[zone], func(rr dns.RR) bool { return dns.IsSubDomain(name, rr.Header().Name) })
}

// own returns the name whose records answer for name, "" if there is none.
func (m model) own(zone, name string) string {
	if m.exists(zone, name) {
		return name
	}
	for !m.exists(zone, name) {
		_, name, _ = strings.Cut(name, ".")
	}
	if m.exists(zone, "*."+name) {
		return "*." + name
	}
	return ""
}

// path returns zone's origin and the names from there down to name.
func path(zone, name string) []string {
	var up []string
	for n := name; n != zone; _, n, _ = strings.Cut(n, ".") {
		up = append(up, n)
	}
	up = append(up, zone)
	slices.Reverse(up)
	return up
}

func renamed(rrs []dns.RR, owner string) (out []string) {
	for _, rr := range rrs {
		rr = dns.Copy(rr)
		rr.Header().Name = owner
		out = append(out, rr.String())
	}
	return out
}

func (m model) answer(qname string, qtype uint16) modelAnswer {
	a := modelAnswer{an: map[string]bool{}, ns: map[string]bool{}, ar: map[string]bool{}}
	add := func(set map[string]bool, texts []string) {
		for _, t := range texts {
			set[t] = true
		}
	}
	seen, followed := map[string]bool{}, map[string]bool{}
	for name := qname; ; {
		zone := m.zone(name, qtype)
		if zone == "" {
			if len(seen) == 0 {
				a.rcode = dns.RcodeRefused
			}
			return a
		}
		referral := func(cut, owner string) modelAnswer {
			a.aa = len(seen) > 0
			ns := m.at(zone, cut, dns.TypeNS)
			add(a.ns, renamed(ns, owner))
			for _, rr := range ns {
				target := rr.(*dns.NS).Ns
				if dns.IsSubDomain(zone, target) {
					add(a.ar, renamed(m.at(zone, m.own(zone, target), dns.TypeA, dns.TypeAAAA), target))
				}
			}
			return a
		}
		redirected := false
		for _, n := range path(zone, name) {
			if n != zone && len(m.at(zone, n, dns.TypeNS)) > 0 && (n != name || qtype != dns.TypeDS) {
				return referral(n, n)
			}
			d := m.at(zone, n, dns.TypeDNAME)
			if n == name || len(d) == 0 {
				continue
			}
			target := d[0].(*dns.DNAME).Target
			a.aa = true
			if seen[name] || len(seen) == maxChain || followed[n] && dns.IsSubDomain(n, target) {
				return a
			}
			seen[name], followed[n] = true, true
			add(a.an, renamed(d, n))
			next := strings.TrimSuffix(name, n) + target
			if len(next)+1 > 255 {
				a.rcode = dns.RcodeYXDomain
				return a
			}
			add(a.an, []string{(&dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: d[0].Header().Ttl}, Target: next}).String()})
			if qtype == dns.TypeCNAME {
				return a
			}
			name, redirected = next, true
			break
		}
		if redirected {
			continue
		}
		a.aa = true
		own := m.own(zone, name)
		if own != name && len(m.at(zone, own, dns.TypeNS)) > 0 {
			return referral(own, name)
		}
		if c := m.at(zone, own, dns.TypeCNAME); len(c) > 0 && qtype != dns.TypeCNAME {
			if seen[name] || len(seen) == maxChain {
				return a
			}
			seen[name] = true
			add(a.an, renamed(c, name))
			name = c[0].(*dns.CNAME).Target
			continue
		}
		rrs := m.at(zone, own, qtype)
		add(a.an, renamed(rrs, name))
		if own == "" {
			a.rcode = dns.RcodeNameError
		}
		if len(rrs) == 0 {
			soa := dns.Copy(m.at(zone, zone, dns.TypeSOA)[0]).(*dns.SOA)
			soa.Hdr.Ttl = min(soa.Hdr.Ttl, soa.Minttl)
			add(a.ns, []string{soa.String()})
		}
		return a
	}
}

// randomZone returns records for names of few labels, so that everything meets
// everything: wildcards, cuts, chains, names below names.
func randomZone(r *rand.Rand, origin string) string {
	name := func() string {
		n := origin
		for range r.IntN(4) {
			n = []string{"a", "b", "*", "c"}[r.IntN(4)] + "." + n
		}
		return n
	}
	target := func() string {
		if r.IntN(6) == 0 {
			return []string{"elsewhere.", "z.", "a.z.", "b.a.z.", "y."}[r.IntN(5)]
		}
		return name()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s 60 SOA ns.%s host.elsewhere. %d 2 3 4 30\n%s 41 NS ns.elsewhere.\n", origin, origin, r.IntN(9), origin)
	used := map[string]bool{origin + "!": true} // names that take no CNAME, or only that
	for i := range 2 + r.IntN(14) {
		n := name()
		switch kind := r.IntN(12); {
		case kind == 0 && !used[n+"!"] && !used[n+"?"]:
			fmt.Fprintf(&b, "%s 40 CNAME %s\n", n, target())
			used[n+"?"] = true
			continue
		case used[n+"?"]:
			continue
		case kind < 3:
			fmt.Fprintf(&b, "%s 41 NS %s\n", n, target())
		case kind == 3 && !used[n+"d"]:
			fmt.Fprintf(&b, "%s 42 DNAME %s\n", n, target())
			used[n+"d"] = true
		case kind == 4:
			fmt.Fprintf(&b, "%s 43 MX 1 %s\n", n, target())
		case kind == 5:
			fmt.Fprintf(&b, "%s 44 TXT t%d\n", n, i)
		case kind == 6 && n != origin:
			fmt.Fprintf(&b, "%s 45 DS 1 8 2 00ff\n", n)
		case kind == 7:
			fmt.Fprintf(&b, "%s 46 AAAA 2001:db8::%x\n", n, i)
		default:
			fmt.Fprintf(&b, "%s 47 A 192.0.2.%d\n", n, i)
		}
		used[n+"!"] = true
	}
	return b.String()
}

// The engine answers as the model does, for every name near the zones and every
// type, over random sets of zones that nest and refer to each other.
func TestAgainstModel(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	types := []uint16{dns.TypeA, dns.TypeNS, dns.TypeCNAME, dns.TypeDNAME, dns.TypeMX, dns.TypeDS, dns.TypeSOA}
	compared := 0
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 9))
		m := model{}
		var zones []string
		for _, origin := range [][]string{{"z."}, {"z.", "y."}, {"z.", "b.a.z.", "y."}}[r.IntN(3)] {
			text := randomZone(r, origin)
			zp := dns.NewZoneParser(strings.NewReader(text), origin, "")
			for rr, ok := zp.Next(); ok; rr, ok = zp.Next() {
				// One TTL for an RRset, and no record twice.
				if !slices.ContainsFunc(m[origin], func(o dns.RR) bool { return dns.IsDuplicate(o, rr) }) {
					m[origin] = append(m[origin], rr)
				}
			}
			if zp.Err() != nil {
				t.Fatal(zp.Err())
			}
			zones = append(zones, origin, text)
		}
		s := serve(t, Options{Minimal: true}, zones...)
		for range 120 {
			name := []string{"z.", "y.", "a.z.", "b.a.z."}[r.IntN(4)]
			for range r.IntN(5) {
				name = []string{"a", "b", "*", "c", "d"}[r.IntN(5)] + "." + name
			}
			qtype := types[r.IntN(len(types))]
			want := m.answer(name, qtype)
			got := s.exchange(question(name, qtype), counters.TCP)
			compared++
			for what, sec := range map[string]struct {
				rrs  []dns.RR
				want map[string]bool
			}{"answer": {got.Answer, want.an}, "authority": {got.Ns, want.ns}, "additional": {got.Extra, want.ar}} {
				have := map[string]bool{}
				for _, rr := range sec.rrs {
					have[rr.String()] = true
				}
				if len(have) != len(sec.rrs) {
					t.Errorf("seed %d, %s: a record is there twice: %v", seed, what, sec.rrs)
				}
				if fmt.Sprint(have) != fmt.Sprint(sec.want) {
					t.Errorf("seed %d, %s: %v, want %v", seed, what, have, sec.want)
				}
			}
			if got.Rcode != want.rcode || got.Authoritative != want.aa || got.Truncated {
				t.Errorf("seed %d: rcode %d, AA %v, want %d, %v", seed, got.Rcode, got.Authoritative, want.rcode, want.aa)
			}
			if t.Failed() {
				t.Fatalf("%s %s over\n%s\ngot %v", name, dns.TypeToString[qtype], strings.Join(zones, "\n"), got)
			}
		}
	}
	t.Logf("%d answers compared", compared)
}
