package redistest

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

var versionText = regexp.MustCompile(`^(Redis|Valkey) server v=(\d+)\.`)

// DebugCommand returns the arguments with which a server allows DEBUG. Before Redis 7, DEBUG is
// always allowed, and there is no such option.
func DebugCommand(tb testing.TB) []string {
	tb.Helper()
	if before7(tb) {
		return nil
	}
	return []string{"--enable-debug-command", "yes"}
}

// before7 reports whether the server is Redis 6.2 or older. Valkey never counts as before 7.
func before7(tb testing.TB) bool {
	tb.Helper()
	bin := binary(tb)
	out, err := exec.CommandContext(tb.Context(), bin, "--version").Output() //nolint:gosec // the binary is the developer's choice
	m := versionText.FindSubmatch(out)
	if err != nil || m == nil {
		tb.Fatalf("redistest: %s --version: %q, %v: is it a redis-server or a valkey-server?", bin, out, err)
	}
	major, _ := strconv.Atoi(string(m[2])) // digits
	return major < 7
}
