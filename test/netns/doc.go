// Package netns lets a test binary run in a network namespace of its own, where
// every port is free, nothing listens, and nothing it sends can leave, and make
// others beside it.
//
// Invariant: the process that called Enter has either ended or is inside.
package netns
