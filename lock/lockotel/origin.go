package lockotel

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
)

const originTime = "2006-01-02T15:04:05.000Z"

// Origin returns the present time and the trace of ctx, for the entry of a claim:
//
//	2026-11-20T10:11:12.345Z 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//
// Give it to [lock.WithOrigin], which stores it with every entry (81 bytes). Replays and
// refusals, in any process, are then linked with the request that caused them. A trace that is
// not sampled is left out.
func Origin(ctx context.Context) string {
	text := time.Now().UTC().Format(originTime)
	span := trace.SpanContextFromContext(ctx)
	if !span.IsSampled() || !span.IsValid() {
		return text
	}
	return text + " 00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"
}

// beganAt returns the time of the claim in owner, by the clock of its process.
func beganAt(owner string) (at time.Time, ok bool) {
	for field := range strings.FieldsSeq(owner) {
		if at, err := time.Parse(originTime, field); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// traceOf returns the span of the claim in owner, an invalid one if there is none.
func traceOf(owner string) trace.SpanContext {
	parent := owner[strings.LastIndexByte(owner, ' ')+1:]
	parts := strings.Split(parent, "-")
	if len(parts) != 4 || parts[0] != "00" {
		return trace.SpanContext{}
	}
	traceID, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return trace.SpanContext{}
	}
	spanID, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled, Remote: true,
	})
}
