// Package guardkey has the key under which a guard of package middleware asks the context of a
// request for the guard further out. latchtest.Coverage finds guards by this question.
package guardkey

// Outer is the key. Code of a handler asks under another one.
type Outer struct{}
