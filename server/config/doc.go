// Package config reads the configuration file.
//
// Invariant: a *Config that Load returns can be run. Every default is filled
// in, every path is absolute, every rule between keys holds. It survives JSON
// exactly, so the workers get the very values that were checked and never see
// the file.
//
//	file --yaml.v3--> nodes --schema--> plain values --viper--> document --rules--> Config
//	                    |                 |                        |
//	                    +--- Problems ----+------- Problems -------+
//
// The table in schema.go is the one description of the keys. The checks, the
// defaults, configs/reference.yaml and the table of docs/configuration.md all
// come from it; what only holds between several keys is in rules.go.
//
// All that is wrong with a file is reported at once, as Problems: each with
// its file, line and key, with what is wrong and what would be right. A key
// that is wrong takes its default for the rest of the check, so that one
// mistake does not hide the others.
//
// The node tree knows lines but no types, viper knows types but no lines.
// Hence the two: the checker walks the nodes and hands viper plain values that
// satisfy the schema; viper lays them over the defaults and decodes them
// strictly (unknown keys and weak types are errors). Its file reading is not
// used: it would read the file a second time, and after it changed.
package config
