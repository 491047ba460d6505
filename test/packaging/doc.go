// Package packaging tests what packaging/ holds: the systemd units and the
// installation. The manual pages are tested by the programs whose help they are.
package packaging
