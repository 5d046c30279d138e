// Package proxies holds the tests of docs/proxies.md with real proxies: how often each sends one POST, by default and
// with the lines of the page, and that an order behind a guard is placed once. It has only tests.
package proxies
