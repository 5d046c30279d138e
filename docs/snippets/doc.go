// Package snippets holds the code of the pages in docs, so that it is compiled
// and its claims are tested, and follows the tutorial as a newcomer would. It is
// a separate module: users of httplatch get no web framework with it.
package snippets
