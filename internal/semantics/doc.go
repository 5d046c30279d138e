// Package semantics holds the table of docs/evidence/semantics.md: what is sent, what is
// answered, and how often the handler ran, each row executed over every store
// and router. It has only tests.
package semantics
