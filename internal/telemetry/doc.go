// Package telemetry holds the tests of package lockotel that need the SDK of
// OpenTelemetry, Prometheus' exporter and its query language, so that none of
// them comes into the go.mod of the library: that every metric moves, is
// documented and clean, that dashboard and alerts refer to metrics that there
// are, and what becomes spans and links.
package telemetry
