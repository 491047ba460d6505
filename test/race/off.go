//go:build !race

package race

// enabled says whether this binary was built with -race.
const enabled = false
