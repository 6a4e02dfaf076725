package tracing

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/cmd/internal/cli"
)

// OpenTelemetry's packages ignore invalid settings, most of them silently, and proceed as if they were not set. So
// these settings are checked first, by the rules that the packages apply.

// otelSetting is an environment variable. rule returns what is wrong with a value, or "".
type otelSetting struct {
	name   string
	rule   func(value string) string
	secret bool // error messages must not repeat the value
}

// exporterSettings have the prefix OTEL_EXPORTER_OTLP_ and the signal, or else without the signal.
var exporterSettings = []otelSetting{
	{name: "ENDPOINT", rule: endpointRule, secret: true},
	{name: "HEADERS", rule: headersRule, secret: true},
	{name: "TIMEOUT", rule: wholeRule("milliseconds", 0, 3_600_000)},
	{name: "COMPRESSION", rule: oneOfRule("gzip", "none")},
	{name: "INSECURE", rule: oneOfRule("true", "false")},
	{name: "CERTIFICATE", rule: rootsRule},
}

// traceSettings and logSettings have full names.
var traceSettings = []otelSetting{
	{name: "OTEL_TRACES_SAMPLER", rule: oneOfRule(append([]string{"always_on", "always_off", "parentbased_always_on",
		"parentbased_always_off"}, ratioSamplers...)...)},
	{name: "OTEL_TRACES_SAMPLER_ARG", rule: samplerArgRule},
	{name: "OTEL_BSP_SCHEDULE_DELAY", rule: wholeRule("milliseconds", 1, 3_600_000)},
	{name: "OTEL_BSP_EXPORT_TIMEOUT", rule: wholeRule("milliseconds", 1, 3_600_000)},
	{name: "OTEL_BSP_MAX_QUEUE_SIZE", rule: wholeRule("spans", 1, 1_000_000)},
	{name: "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", rule: batchRule},
	{name: "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", rule: limitRule},
	{name: "OTEL_ATTRIBUTE_COUNT_LIMIT", rule: limitRule},
	{name: "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", rule: limitRule},
	{name: "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", rule: limitRule},
	{name: "OTEL_SPAN_EVENT_COUNT_LIMIT", rule: limitRule},
	{name: "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", rule: limitRule},
	{name: "OTEL_SPAN_LINK_COUNT_LIMIT", rule: limitRule},
	{name: "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", rule: limitRule},
}

var logSettings = []otelSetting{
	{name: "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", rule: limitRule},
	{name: "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", rule: limitRule},
}

// checkSettings rejects invalid settings of a signal. It is called only if that is exported: otherwise the settings don't matter.
func checkSettings(signal string, plain []otelSetting) error {
	for _, s := range exporterSettings {
		name, value := exporterSetting(signal, s.name)
		if err := s.check(name, value); err != nil {
			return err
		}
	}
	for _, s := range plain {
		if err := s.check(s.name, os.Getenv(s.name)); err != nil {
			return err
		}
	}
	return checkClientPair(signal)
}

func (s otelSetting) check(name, value string) error {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil
	}
	rule := s.rule(value)
	switch {
	case rule == "":
		return nil
	case s.secret:
		return cli.Usage("%s: %s", name, rule)
	}
	return cli.Usage("%s=%q %s", name, value, rule)
}

// exporterSetting returns a setting of the exporter and the variable that it is from: the one for the signal, or else the one for all.
func exporterSetting(signal, part string) (name, value string) {
	if name = "OTEL_EXPORTER_OTLP_" + signal + "_" + part; strings.TrimSpace(os.Getenv(name)) == "" {
		name = "OTEL_EXPORTER_OTLP_" + part
	}
	return name, strings.TrimSpace(os.Getenv(name))
}

func oneOfRule(words ...string) func(string) string {
	return func(value string) string {
		if slices.Contains(words, strings.ToLower(value)) {
			return ""
		}
		return "is not one of " + strings.Join(words, ", ")
	}
}

func wholeRule(unit string, from, to int) func(string) string {
	return func(value string) string {
		if n, err := strconv.Atoi(value); err != nil || n < from || n > to {
			return fmt.Sprintf("is not a number of %s from %d to %d, without a unit", unit, from, to)
		}
		return ""
	}
}

func limitRule(value string) string {
	if n, err := strconv.Atoi(value); err != nil || n < -1 {
		return "is not a number from 0 on, or -1 for no limit"
	}
	return ""
}

// batchRule is the rule of the batch processor: a batch must fit into its queue, which holds 2048 spans by default.
func batchRule(value string) string {
	queue, err := strconv.Atoi(cmp.Or(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"), "2048"))
	if n, batchErr := strconv.Atoi(value); err != nil || batchErr != nil || n < 1 || n > queue {
		return fmt.Sprintf("is not a number of spans from 1 to %d, which is OTEL_BSP_MAX_QUEUE_SIZE", queue)
	}
	return ""
}

var ratioSamplers = []string{"traceidratio", "parentbased_traceidratio"}

func samplerArgRule(value string) string {
	sampler := strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER")))
	if !slices.Contains(ratioSamplers, sampler) {
		return fmt.Sprintf("is for the samplers %s, but OTEL_TRACES_SAMPLER is %q", strings.Join(ratioSamplers, " and "), sampler)
	}
	if ratio, err := strconv.ParseFloat(value, 64); err != nil || !(ratio >= 0 && ratio <= 1) { // also rejects NaN
		return "is not a part of all traces from 0 to 1"
	}
	return ""
}

// endpointRule accepts only what both protocols understand. A scheme is required: without it, OpenTelemetry takes HOST
// for the scheme, or drops the setting.
func endpointRule(value string) string {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		if _, after, ok := strings.Cut(value, "@"); ok { // the part before @ may include a password
			value = "…@" + after
		}
		return fmt.Sprintf("%q is not a URL: want http://HOST:PORT, or https:// for TLS", value)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Sprintf("%q: the port is not from 1 to 65535", u.Redacted())
		}
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Sprintf("%q: a user, a query or a fragment would not be sent; credentials go into OTEL_EXPORTER_OTLP_HEADERS",
			u.Redacted())
	}
	return ""
}

// headersRule identifies a header by its position: its text may be a secret.
func headersRule(value string) string {
	for i, header := range strings.Split(value, ",") {
		name, text, found := strings.Cut(header, "=")
		name = strings.TrimSpace(name)
		switch {
		case !found:
			return fmt.Sprintf("header %d is not NAME=VALUE; headers are separated by commas", i+1)
		case name == "" || strings.Trim(name, headerNameBytes) != "":
			return fmt.Sprintf("the name of header %d has other characters than a-z, A-Z, 0-9, '-', '_' and '.', or is empty", i+1)
		}
		if plain, err := url.PathUnescape(text); err != nil || strings.ContainsFunc(plain, func(r rune) bool {
			return r < ' ' || r == 0x7f
		}) {
			return fmt.Sprintf("the value of header %d (%s) is not text with its special characters written as %%XX", i+1, name)
		}
	}
	return ""
}

// headerNameBytes are the bytes that HTTP and gRPC both allow in a header's name.
const headerNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

func rootsRule(path string) string {
	if _, err := cli.ReadRoots(path); err != nil {
		return "is of no use: " + err.Error()
	}
	return ""
}

// checkClientPair checks the exporter's client certificate and key.
func checkClientPair(signal string) error {
	certName, cert := exporterSetting(signal, "CLIENT_CERTIFICATE")
	keyName, key := exporterSetting(signal, "CLIENT_KEY")
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "" || key == "":
		return cli.Usage("%s=%q and %s=%q go together: give both or neither", certName, cert, keyName, key)
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return cli.Usage("%s=%q with %s=%q: %w", certName, cert, keyName, key, err)
	}
	return nil
}
