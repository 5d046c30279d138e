// Package js tests the npm package in the directory js: by the tests of node, and in Chromium, where a
// page of React submits orders to the real desk through a proxy that loses answers.
package js
