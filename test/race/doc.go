// Package race holds one test: that the run which is named after the race
// detector was built with it.
package race
