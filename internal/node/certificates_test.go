package node

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/transport"
)

// When certificates of a node expire is a metric, and from 30 days before in its log and among the problems of the cluster, at each node.
// New certificates end that.
func TestCertificatesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.lines = &logLines{}
		w.certify("n1", "n2") // for 5 days, by an authority for 10
		w.start("n1", t.TempDir(), "n1")
		s := w.start("n2", t.TempDir(), "n1")
		w.until("ready", s.health.ready)
		for _, what := range []string{"peer days=4", "peer_ca days=9"} {
			of, days, _ := strings.Cut(what, " ")
			if lines := w.lines.about("node=n2", "a certificate expires soon", "certificate="+of+" ", days); len(lines) != 1 {
				t.Errorf("logged about %s: %q", of, lines)
			}
			if line := fmt.Sprintf("pawl_certificate_expiry_timestamp_seconds{certificate=%q} ", of); !strings.Contains(scrape(t, s),
				line) {
				t.Errorf("the page lacks %q", line)
			}
		}
		problems := func() (all []string) {
			o, err := w.nodes[w.leaderOf(systemShard)].control.Placement.Overview(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range o.Problems() {
				if strings.Contains(p.Text, "(--peer-") {
					all = append(all, p.Text)
				}
			}
			return all
		}
		w.until("both are named", func() error {
			if got := problems(); len(got) != 2 || got[0] != "the peer certificate (--peer-cert) of node n1 expires in 4 days" {
				return fmt.Errorf("problems: %q", got)
			}
			return nil
		})

		now := time.Now()
		ca, err := certs.NewAuthority(now, 100)
		if err != nil {
			t.Fatal(err)
		}
		old, err := os.ReadFile(filepath.Join(w.certs, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		pair, err := certs.NewNode(ca, now, 90, "n2", nil)
		if err != nil {
			t.Fatal(err)
		}
		write := func(file string, content []byte) {
			if err := os.WriteFile(filepath.Join(w.certs, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("ca.crt", append(old, ca.Cert...))
		write("n2.crt", pair.Cert)
		write("n2.key", pair.Key)
		pass(2 * time.Minute)
		if page := scrape(t, s); !strings.Contains(page, fmt.Sprintf("{certificate=\"peer\"} %v\n",
			float64(now.AddDate(0, 0, 90).Unix()))) {
			t.Errorf("after a new certificate: %s", page)
		}
		w.until("the old authority is named", func() error {
			if got := problems(); len(got) != 2 || got[1] != "the peer authority (--peer-ca) of node n2 expires in 9 days" {
				return fmt.Errorf("problems: %q", got)
			}
			return nil
		})
	})
}

// The certificates of a node are those for its clients too.
func TestCertificatesForClients(t *testing.T) {
	ca, err := certs.NewAuthority(time.Now(), 100)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.NewServer(ca, time.Now(), 50, "s", []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := transport.New(transport.Config{Self: func() transport.Peer { return transport.Peer{Name: "n1"} }})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	until := time.Now().AddDate(1, 0, 0)
	n := &Node{transport: plain, cfg: Config{Certificate: func() *tls.Certificate { return &cert }, ClientCertificates: ClientCertificates{
		Until: func() time.Time { return until }}}}
	if ends := n.certificateEnds(); len(ends) != 2 || !ends[certs.Server].Equal(cert.Leaf.NotAfter) ||
		!ends[certs.ClientAuthority].Equal(until) {
		t.Errorf("they end at %v", ends)
	}
	n.cfg = Config{}
	if ends := n.certificateEnds(); len(ends) > 0 {
		t.Errorf("in plaintext they end at %v", ends)
	}
}
