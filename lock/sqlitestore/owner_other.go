//go:build !unix

package sqlitestore

import "os"

func giveTo(string, os.FileInfo) error { return nil }

func links(os.FileInfo) uint64 { return 1 }
