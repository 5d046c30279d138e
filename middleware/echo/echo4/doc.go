// Package latchecho mounts the guards of httplatch in echo v4, as the package above it does in v5:
// the rules are the same.
package latchecho
