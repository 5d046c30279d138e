// Package faults holds the tests that run whole lockers and routes against
// real servers which lose replies, stall, die and come back. It has no code of
// its own.
package faults
