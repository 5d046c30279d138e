//go:build unix

package sqlitestore

import (
	"os"
	"syscall"
)

// giveTo gives a file that root has made to the owner of the database, as SQLite does with the files
// that it makes beside it. Else the service could not open what a job of root has left.
func giveTo(path string, database os.FileInfo) error {
	if of, ok := database.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		return os.Chown(path, int(of.Uid), int(of.Gid))
	}
	return nil
}

// links returns the number of names of a file.
func links(file os.FileInfo) uint64 {
	if of, ok := file.Sys().(*syscall.Stat_t); ok {
		return uint64(of.Nlink) //nolint:unconvert // a smaller type on some systems
	}
	return 1
}
