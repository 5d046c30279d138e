package web

import "net/http"

// Idemlease returns nil: the module proxy that this bench is run with may not have that
// module, and then there would be no bench at all. With IDEMLEASE=a checkout of it,
// "make bench" puts testdata/idemlease.go in the place of this file.
func Idemlease() func() func(http.Handler) http.Handler { return nil }
