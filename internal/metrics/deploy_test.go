package metrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const deploy = "../../deploy/"

// relayMetrics is the file with the metrics of "pawl-outbox relay".
const relayMetrics = "../../cmd/internal/relay/metrics.go"

// ofPage returns the names on the page, including those of parts of histograms, and those of a relay's page.
func ofPage(t *testing.T) map[string]bool {
	names := map[string]bool{"pawl_": true}
	relay, err := os.ReadFile(relayMetrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"(pawl_outbox_[a-z_]+)"`).FindAllStringSubmatch(string(relay), -1) {
		names[m[1]] = true
	}
	for line := range strings.Lines(scenario().read(t)) {
		if f := strings.Fields(line); f[0] == "#" && f[1] == "TYPE" {
			names[f[2]] = true
			if f[3] == "histogram" {
				names[f[2]+"_bucket"], names[f[2]+"_sum"], names[f[2]+"_count"] = true, true, true
			}
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\bpawl_[a-z_]+`)

func checkExpression(t *testing.T, where, expr string, known map[string]bool) {
	t.Helper()
	for _, name := range metricName.FindAllString(expr, -1) {
		if !known[name] {
			t.Errorf("%s uses %s, which no metrics page has", where, name)
		}
	}
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(path) == ".json" {
		err = json.Unmarshal(b, into)
	} else {
		err = yaml.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// anchor returns the link target of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// checkRunbook checks a section of the runbook: it says which pages show the problem, how to see that it is resolved and how long the alert
// remains, and which role that takes.
func checkRunbook(t *testing.T, alert, at, section string) {
	t.Helper()
	if section == "" {
		t.Errorf("%s links to docs/alerts.md#%s, which does not exist", alert, at)
		return
	}
	for part, says := range map[string]*regexp.Regexp{
		"Pages":    regexp.MustCompile("`/[a-z]*"),
		"Resolved": regexp.MustCompile(`(?s)alert.* ends? (at once|within that time|an hour after|a day after)`),
		"Role":     regexp.MustCompile("`(observe|operate|admin)"),
	} {
		_, rest, _ := strings.Cut(section, "\n- *"+part+"*")
		if item, _, _ := strings.Cut(rest, "\n- "); !says.MatchString(item) {
			t.Errorf("docs/alerts.md#%s has no item %s that matches %s: %q", at, part, says, item)
		}
	}
}

// Each alert says how severe it is, what has happened and where to read on, uses metrics that exist, and has a test for promtool.
func TestAlerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	read(t, deploy+"prometheus/alerts.yaml", &rules)
	tests, err := os.ReadFile(deploy + "prometheus/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	book, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^##+ `).Split(string(book), -1) {
		heading, text, _ := strings.Cut(part, "\n")
		sections[anchor(strings.TrimSpace(heading))] = text
	}
	known := ofPage(t)
	for _, r := range rules.Groups[0].Rules {
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
		_, at, _ := strings.Cut(r.Annotations["runbook_url"], "docs/alerts.md#")
		checkRunbook(t, r.Alert, at, sections[at])
		if !strings.Contains(string(tests), "alertname: "+r.Alert+"\n") {
			t.Errorf("%s has no test in alerts_test.yaml", r.Alert)
		}
		checkExpression(t, r.Alert, r.Expr, known)
	}
	if n := len(rules.Groups[0].Rules); n < 9 {
		t.Errorf("there are only %d alerts, want at least 9", n)
	}
}

func TestDashboard(t *testing.T) {
	var board struct {
		UID    string
		Panels []struct {
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	read(t, deploy+"grafana/pawl.json", &board)
	known := ofPage(t)
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no targets", p.Title)
		}
		for _, target := range p.Targets {
			checkExpression(t, "panel "+p.Title, target.Expr, known)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q overlaps %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// No containers run here: the test checks that the files are complete and refer to each other correctly.
func TestCompose(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Build   struct{ Context, Dockerfile string }
			Image   string
			Ports   []string
			Volumes []string
		}
		Volumes map[string]any
	}
	read(t, deploy+"compose/compose.yaml", &compose)
	for name, s := range compose.Services {
		if (s.Image == "") == (s.Build.Context == "") {
			t.Errorf("service %s has image %q and build context %q, want exactly one of them", name, s.Image, s.Build.Context)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("service %s publishes a port beyond this machine: %s", name, port)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, named := compose.Volumes[from]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join(deploy, "compose", from)); err != nil {
				t.Errorf("service %s: %v", name, err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(deploy, "compose", compose.Services["pawl"].Build.Context,
		compose.Services["pawl"].Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	var prometheus struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			Job string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	read(t, deploy+"prometheus/prometheus.yaml", &prometheus)
	if prometheus.RuleFiles[0] != "alerts.yaml" || prometheus.ScrapeConfigs[0].Job != "pawl" {
		t.Errorf("Prometheus reads the rules %q and scrapes %q, want alerts.yaml and pawl", prometheus.RuleFiles,
			prometheus.ScrapeConfigs[0].Job)
	}
	var any map[string]any
	read(t, deploy+"grafana/provisioning/datasources/prometheus.yaml", &any)
	read(t, deploy+"grafana/provisioning/dashboards/pawl.yaml", &any)
}
