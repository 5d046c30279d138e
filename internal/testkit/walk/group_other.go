//go:build !unix

package walk

import "os/exec"

// inOneGroup does nothing: processes in the background may outlive the shell.
func inOneGroup(*exec.Cmd) {}
