//go:build unix

package doctest_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	rulesFile     = "packaging/prometheus/fenced.rules.yml"
	ruleTestsFile = "packaging/prometheus/fenced.rules.test.yml"
	dashboardFile = "packaging/grafana/fenced.json"
)

// rule is one alert of the rules file.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, rulesFile)), &file); err != nil || len(file.Groups) != 1 {
		t.Fatalf("%s: %d groups, %v", rulesFile, len(file.Groups), err)
	}
	return file.Groups[0].Rules
}

// TestRules_AreTheTableOfAlerts: who is called by an alert finds it on the page, and
// what the page promises is watched for.
func TestRules_AreTheTableOfAlerts(t *testing.T) {
	t.Parallel()
	var table, file []string
	for _, row := range alert.FindAllStringSubmatch(read(t, "docs/operations.md"), -1) {
		table = append(table, row[1]+": "+strings.ReplaceAll(row[2], `\|`, "|")+" for "+row[3])
	}
	for _, r := range rules(t) {
		file = append(file, r.Alert+": "+r.Expr+" for "+r.For)
		if r.Annotations["summary"] == "" || r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
			t.Errorf("%s: labels %v, annotations %v", r.Alert, r.Labels, r.Annotations)
		}
	}
	for _, line := range table {
		if !slices.Contains(file, line) {
			t.Errorf("%s lacks what docs/operations.md has:\n%s", rulesFile, line)
		}
	}
	for _, line := range file {
		if !slices.Contains(table, line) {
			t.Errorf("docs/operations.md lacks what %s has:\n%s", rulesFile, line)
		}
	}
}

// TestRules_FireAndKeepSilent has Prometheus's own tool play the cases of each alert.
func TestRules_FireAndKeepSilent(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Fires []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal([]byte(read(t, ruleTestsFile)), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Fires) > 0 {
				fires[c.Alert] = true
			} else {
				silent[c.Alert] = true
			}
		}
	}
	for _, r := range rules(t) {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: no case in which %s fires, or none in which it is silent", ruleTestsFile, r.Alert)
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed: the rules were not played")
	}
	run(t, nil, "promtool", "test", "rules", ruleTestsFile)
}

// dashboard is what the tests look at of Grafana's file.
type dashboard struct {
	UID    string `json:"uid"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatalf("%s: %v", dashboardFile, err)
	}
	return d
}

// queries returns what the dashboard asks for, as Prometheus gets it.
func (d dashboard) queries() (all []string) {
	fill := strings.NewReplacer("$__rate_interval", "5m", "$job", "fenced")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, fill.Replace(target.Expr))
		}
	}
	return all
}

// TestDashboard_Panels: each has a query and a place that no other one has.
func TestDashboard_Panels(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] != "" || p.Title == "" {
			t.Errorf("panel %q has the id of %q", p.Title, ids[p.ID])
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] != "" || x >= 24 {
					t.Fatalf("panel %q lies on %q", p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	recording := "groups:\n- name: dashboard\n  rules:\n"
	for i, query := range d.queries() {
		recording += fmt.Sprintf("  - {record: panel_%d, expr: %q}\n", i, query)
	}
	promtool(t, recording, "check", "rules")
}

var (
	series   = regexp.MustCompile(`\bfenced_\w+|\bALERTS\b|\bup\b`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
	sample   = regexp.MustCompile(`(?m)^(fenced_\w+)(?:\{(.*)\})? `)
	quoted   = regexp.MustCompile(`"[^"]*"`)
)

// TestDashboard_AsksForWhatThereIs wants every series and every label that the
// dashboard and the alerts name at /metrics of a running server.
func TestDashboard_AsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	text := metrics(t)
	// What Prometheus adds to every series, and makes itself.
	has := map[string]bool{"up": true, "ALERTS": true}
	labels := map[string]bool{"job": true, "instance": true, "alertname": true, "alertstate": true}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		has[m[1]] = true
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = true
		}
	}
	queries := readDashboard(t).queries()
	for _, r := range rules(t) {
		queries = append(queries, r.Expr)
	}
	if len(queries) < 40 {
		t.Fatalf("only %d queries can be read", len(queries))
	}
	for _, query := range queries {
		for _, name := range series.FindAllString(quoted.ReplaceAllString(query, `""`), -1) {
			if !has[name] {
				t.Errorf("the server has no %s, for which this asks: %s", name, query)
			}
		}
		for name := range labelsOf(query) {
			if !labels[name] {
				t.Errorf("no series has the label %q, for which this asks: %s", name, query)
			}
		}
	}
}

// labelsOf returns the labels that a query names.
func labelsOf(query string) map[string]bool {
	names := map[string]bool{}
	for _, m := range matcher.FindAllStringSubmatch(query, -1) {
		names[m[1]] = true
	}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			if name = strings.TrimSpace(name); name != "" {
				names[name] = true
			}
		}
	}
	return names
}
