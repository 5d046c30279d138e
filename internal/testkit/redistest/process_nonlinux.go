//go:build !linux

package redistest

import "syscall"

// dieWithParent: only Linux can tie a child to its parent. Elsewhere a test
// binary that is killed leaves its servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped takes the signal's word for it.
func stopped(int) bool { return true }
